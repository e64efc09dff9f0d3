"""Hostile input, made by seeds: requests and batches that a real node gets over real sockets."""
