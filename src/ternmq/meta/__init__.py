"""Names, ids, epochs and routes: a registry in SQL, a copy in memory, a server for clients."""
