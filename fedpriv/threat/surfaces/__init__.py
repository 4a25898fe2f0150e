"""What an adversary may use: one file for each kind of access."""
