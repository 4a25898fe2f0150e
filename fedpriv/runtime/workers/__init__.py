"""Processes that work for the one that a person has started."""
