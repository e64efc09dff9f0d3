"""One segmented log, and what every replicated log has: epochs, recovery, retention rules."""
