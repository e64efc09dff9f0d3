"""What every package uses: ids, units, clock, ranges, errors, config, log. No network, no disk."""
