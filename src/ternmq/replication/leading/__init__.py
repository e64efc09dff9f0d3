"""A master: who follows, what counts, the streams to replicas."""
