"""Bytes to frames to commands, without sockets: the same code drives server, client and fuzzer."""
