"""Experiments in YAML: read, checked, and built."""
