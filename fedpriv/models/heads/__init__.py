"""Heads of encoders: tags, links, masked words."""
