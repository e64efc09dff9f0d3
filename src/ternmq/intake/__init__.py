"""What brokers and delay servers do alike with a producer's batch, between its door and the log."""
