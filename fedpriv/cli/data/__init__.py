"""`fedpriv data`: check, convert and recognise data sets."""
