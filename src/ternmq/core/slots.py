"""Order keys fall into 1,024 slots; each slot belongs to one broker group at a time.

The mapping never changes: every client and every broker works it out for itself.
"""

from crc32c import crc32c

SLOTS = 1_024


def slot_of(topic: str, order_key: str) -> int:
    """The slot of an order key; each topic spreads its keys in its own way."""
    return crc32c(order_key.encode(), crc32c(topic.encode())) % SLOTS
