"""Benchmarks of TernMQ and of its peers; not part of the product."""
