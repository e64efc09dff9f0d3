"""Consumer groups as state machines: lanes, leases, order. Pure: no loop, thread or file."""
