"""Names of queues and exchanges as names of topics. Pure.

A topic has letters, digits, '.', '_' and '-'; queues have anything, as '@' in `worker@host`. Other
characters become `_x40_`, and so does an underscore that would be read as the beginning of one, so
that two queues never share a topic. Names that are too long end in a digest of the whole.
"""

import hashlib
import re

from ternmq.core.ids import NAME_SIZE_MAX

_OTHER = re.compile(r"[^A-Za-z0-9._-]|_(?=x)")
DIGEST_SIZE = 16


def topic_of_queue(queue: str, prefix: str = "") -> str:
    return _bounded(prefix + _OTHER.sub(_escaped, queue))


def topic_of_exchange(exchange: str, prefix: str = "") -> str:
    """Of an exchange whose messages all queues get."""
    return _bounded(f"{prefix}fanout.{_OTHER.sub(_escaped, exchange)}")


def _escaped(found: "re.Match[str]") -> str:
    return f"_x{ord(found.group()):x}_"


def _bounded(name: str) -> str:
    if len(name) <= NAME_SIZE_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_SIZE]
    return f"{name[: NAME_SIZE_MAX - DIGEST_SIZE - 1]}-{digest}"
