"""What may be sent now, and what has passed: rate limits and traffic counters."""
