"""The files of a delay server: message log, journal, files of hours, checkpoints."""
