"""The same federation on Flower's own engines."""
