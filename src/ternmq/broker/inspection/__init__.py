"""What people look into: single rows, leases, rows that wait, the trace of a message."""
