"""Strategies that were written for Flower, and what anybody's strategy may get wrong."""
