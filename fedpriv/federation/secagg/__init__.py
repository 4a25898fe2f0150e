"""Secure aggregation: the server learns the sum of the clients' vectors and no vector.

`ring` writes real vectors as integers modulo 2³², `masks` hides them, `shamir` shares secrets,
and `protocol` puts the three together; its docstring has the threat model and an example.
"""
