"""Words everybody uses: ids, units, clock, ranges, errors, config, lifecycle. No I/O of its own."""
