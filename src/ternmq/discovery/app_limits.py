"""Where the limits of applications are kept: as the settings of two topics of our own.

So they need no place of their own in the registry, and a broker finds them, like every topic, in
memory. An application without such topics has no limits.
"""

PREFIX = "%limit."


def send_limit(app: str) -> str:
    """The topic whose rates say how much an application may send."""
    return f"{PREFIX}send.{app}"


def consume_limit(app: str) -> str:
    """The topic whose rates say how much an application may consume."""
    return f"{PREFIX}consume.{app}"
