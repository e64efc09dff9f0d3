"""The consume log: which batches hold which sequences of a topic."""
