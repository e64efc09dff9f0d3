"""ACK: acks, retries and rejects of leased rows, and the move of rejected ones to dead letters."""
