"""What all packages use: ids, units, clock, ranges, errors, settings, log. No network, no disk."""
