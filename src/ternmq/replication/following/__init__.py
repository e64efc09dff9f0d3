"""A replica: the link to its master, and the writer of what comes."""
