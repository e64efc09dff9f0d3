"""The console and the HTTP API over real nodes."""
