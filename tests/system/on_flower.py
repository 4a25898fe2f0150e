"""Runs the toy experiment on Flower's own simulation engine; a script, so that it is a process."""

import sys

from fedpriv.deploy.flower import simulate

if __name__ == "__main__":
    simulate(sys.argv[1], " ".join(sys.argv[2:]))
