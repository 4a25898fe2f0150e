"""Attacks: one file or small folder each."""
