"""What operators ask of a delay server: find, list, cancel, reschedule, figures."""
