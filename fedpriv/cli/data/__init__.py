"""`fedpriv data`: inspect, convert and recognise data sets."""
