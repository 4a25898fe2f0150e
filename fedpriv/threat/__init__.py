"""Attacks on run folders: what they may use, what they hand back, how it is scored."""
