"""The HTTP API (`/api/v1`), and what it shares with the console: the watch, actions, browsing."""
