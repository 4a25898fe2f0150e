"""The server's half of each algorithm, one file per paper."""
