"""All roles in one process: what `tern up` runs and what tests start inside themselves."""
