"""Who asks, on a cluster with security on: rights, what is seen by them, a client for each."""
