"""What brokers and delay servers do alike with a batch, between the socket and the log."""
