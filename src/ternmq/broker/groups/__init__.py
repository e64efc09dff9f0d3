"""Consumer groups as state machines: lanes, leases, retries, order. Pure: no loop, thread, file or socket."""
