"""The mechanism of a federation, measured by canaries against its ledger."""
