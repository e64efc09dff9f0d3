"""A replica's store that gets its bytes from a master's store, without a network between them."""

from ternmq.storage.log.append import Append
from ternmq.storage.store import Store


def stream(master: Store, replica: Store, *, size: int = 1 << 20, sync: bool = True) -> None:
    """Everything the master has written, in pieces of `size` bytes that end anywhere."""
    for ours, theirs in ((replica.messages, master.messages), (replica.pulls, master.pulls)):
        while data := theirs.read_raw(ours.received_end, size):
            ours.receive(ours.received_end, data)
        received = ours.take()
        if received is not None:
            ours.write_received(received, sync=sync)


def advance(store: Store, message_to: int, pull_to: int) -> list[Append]:
    found: list[Append] = []
    while appends := store.messages.advance(message_to):
        found += appends
    store.pulls.advance(pull_to)
    return found


def follow(master: Store, replica: Store, *, size: int = 1 << 20) -> list[Append]:
    """Until the replica has and shows everything that the master shows."""
    stream(master, replica, size=size)
    return advance(replica, master.messages.safe_offset, master.pulls.safe_offset)
