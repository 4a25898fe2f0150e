"""What a model says that is not on the page."""
