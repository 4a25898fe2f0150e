"""The round loop, and the two halves of a federated algorithm: strategies and clients."""
