"""How a server that is its own process joins a cluster: found, registered, kept up to date."""
