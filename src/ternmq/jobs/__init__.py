"""Long work that survives who began it: documents with progress, run by one of several runners."""
