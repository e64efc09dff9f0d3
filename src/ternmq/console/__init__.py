"""The web console: pages over the same watch and actions as the HTTP API."""
