"""A run folder, told as one self-contained HTML page."""
