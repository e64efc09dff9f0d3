"""Names of topics of our own that both meta and brokers know. They begin with '%'."""

REFUSED_PREFIX = "%refused."


def refused_topic(topic: str) -> str:
    """The hidden topic that keeps what was over a topic's limit; deleted together with it."""
    return f"{REFUSED_PREFIX}{topic}"
