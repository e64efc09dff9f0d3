"""Copies logs from a master to its replicas and says what every in-sync member has."""
