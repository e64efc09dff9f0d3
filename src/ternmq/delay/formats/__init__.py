"""The bytes and names of a delay server's files."""
