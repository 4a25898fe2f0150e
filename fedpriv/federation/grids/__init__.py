"""Where clients run: every grid stands behind Flower's public `Grid` ABC."""
