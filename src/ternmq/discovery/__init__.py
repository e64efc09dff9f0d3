"""Finding servers and names: the URL, the cached routes, and the directory of topics and groups."""
