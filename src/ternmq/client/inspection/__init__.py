"""Looking into the queue: states of messages, leases, traces, and what they mean."""
