"""`tern run`: an application's handlers as processes, with workers, reload and health checks."""
