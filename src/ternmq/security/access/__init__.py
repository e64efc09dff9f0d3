"""Identities and their rights: proofs, grants, decisions. Without sockets."""
