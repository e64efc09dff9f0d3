"""Servers as processes: locks, signals, logs, the cluster on one machine."""
