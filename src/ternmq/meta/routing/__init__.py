"""Which servers there are, as clients are told, and where messages go."""
