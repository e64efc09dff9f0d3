"""The message log and what is derived from it: producers, transactions, search."""
