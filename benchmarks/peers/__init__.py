"""Peers of TernMQ, started here and measured in the same run, from Python clients, like with like.

`driver` says what a peer and a result are, `workloads` is the measuring (the same for every peer),
one module per peer starts its server and speaks through its usual Python client, `install` fetches
what a machine lacks, `run` is the command. No module here is imported by the product.
"""
