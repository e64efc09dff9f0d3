"""Encrypted topics: keys of a client, bodies encrypted on the way out and opened on the way in."""
