"""Experiments that are run: one, with its attack; and several beside each other, and their page."""
