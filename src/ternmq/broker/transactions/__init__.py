"""HALF, HALF_END, DETACHED_END: half batches, their ends, and asking producers about them."""
