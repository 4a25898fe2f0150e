"""Trackers: where else the metrics of a run are written, for people who compare runs elsewhere.

`base` has the protocol, and each other file one tracker.
"""
