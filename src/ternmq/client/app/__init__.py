"""`App`: handlers by decorator, run as tasks or in threads."""
