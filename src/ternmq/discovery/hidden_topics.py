"""Names of topics of our own that both meta and brokers know. They begin with '%'."""

PLACEMENT = "%placement"
"""Its settings hold the `Placement` of the cluster."""
REFUSED_PREFIX = "%refused."
LATER_PREFIX = "%later."


def refused_topic(topic: str) -> str:
    """The hidden topic that keeps what was over a topic's limit; deleted together with it."""
    return f"{REFUSED_PREFIX}{topic}"


def later_topic(delay_server: str) -> str:
    """The hidden topic whose messages this delay server takes; deleted when it is forgotten."""
    return f"{LATER_PREFIX}{delay_server}"
