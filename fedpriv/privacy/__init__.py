"""Mechanisms, the ledger of their releases, and ε in four views."""
