"""What applications hold in their hands: messages, receipts, codecs, times. No network."""
