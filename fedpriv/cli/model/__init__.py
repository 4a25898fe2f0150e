"""`fedpriv model`: what can be done with a model."""
