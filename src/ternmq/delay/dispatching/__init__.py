"""Due rows on their way to brokers: collect, decide, send."""
