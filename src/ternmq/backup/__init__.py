"""Backups of data directories: taken while servers run, restored, verified. See docs/day-two.md."""
