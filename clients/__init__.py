"""The client's half of each algorithm, one file per paper."""
