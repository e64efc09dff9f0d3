"""The master: which replicas follow, what is acknowledged, the streams to replicas."""
