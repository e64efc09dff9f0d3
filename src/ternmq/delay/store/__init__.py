"""The files of a delay server: message log, schedule logs, journal."""
