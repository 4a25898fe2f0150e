"""The Flower app of fedpriv."""
