"""Commands that run jobs: the Spark pipeline and the outbox relay."""
