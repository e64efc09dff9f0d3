"""Bodies that are encrypted: data keys, and the master keys that wrap them."""
