"""Messages about what the registry keeps for programs: documents."""
