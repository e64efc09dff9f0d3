"""The real-time broker: takes batches, keeps them, hands them out, accounts for every row."""
