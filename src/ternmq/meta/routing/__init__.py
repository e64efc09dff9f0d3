"""The routes that clients are given: which servers are up, and where messages go."""
