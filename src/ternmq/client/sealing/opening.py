"""Opens the encrypted bodies of a batch, row by row, with keys that are handed in.

Which rows: those that were delivered, since the bodies of others may have been left at the broker.
What cannot be opened (its key was erased, or is not here, or bytes were changed) becomes an error
in its place, so that one bad row harms no other. A key of another topic opens nothing.
"""

from collections.abc import Callable, Sequence

from ternmq.batch.seal import OpenedBodies, key_of
from ternmq.batch.view import BatchView
from ternmq.client.model.delivery import ACK, Outcome, reject_outcome, retry_outcome
from ternmq.core.errors import Corrupt, Erased, TernError
from ternmq.discovery.hidden_topics import RESERVED
from ternmq.security.sealing.data_key import DataKey

Ranges = Sequence[tuple[int, int]]
FindKey = Callable[[int], DataKey]
"""The key of that number; raises `Erased` or `KeyNotFound`."""


def keys_of(view: BatchView) -> set[int]:
    """The numbers of the keys that its rows need."""
    return {key_of(seal) for seal in view.seals() if seal is not None}


def open_batch(view: BatchView, ranges: Ranges, find: FindKey) -> OpenedBodies:
    """Put what the encrypted bodies of these rows say into the view. Never raises: what cannot be
    read says why when it is read."""
    try:
        bodies, seals = view.bodies(), view.seals()
    except Corrupt as error:
        opened = OpenedBodies([error] * view.count)
        view.put_bodies(opened)
        return opened
    opened = OpenedBodies(bodies)
    keys: dict[int, DataKey | TernError] = {}
    for first, end in ranges:
        for row in range(first, end):
            at = view.place(row)
            seal = seals[at]
            if seal is not None:
                opened[at] = _opened(view, row, bodies[at], seal, keys, find)
    view.put_bodies(opened)
    return opened


def _opened(
    view: BatchView,
    row: int,
    body: bytes,
    seal: bytes,
    keys: dict[int, DataKey | TernError],
    find: FindKey,
) -> bytes | TernError:
    number = key_of(seal)
    key = keys.get(number)
    if key is None:
        key = keys[number] = _found(view.topic, number, find)
    if isinstance(key, TernError):
        return key
    try:
        return key.decrypt(body, seal, view.id_bytes(row))
    except TernError as error:
        return error


def _found(topic: str, number: int, find: FindKey) -> DataKey | TernError:
    """A body may only be under a key of its own topic: else it was copied from another one. Our own
    topics (dead letters) hold messages of several."""
    try:
        key = find(number)
    except TernError as error:
        return error
    if key.topic != topic and not topic.startswith(RESERVED):
        return Corrupt(f"a body in topic {topic!r} is under key {number}, of topic {key.topic!r}")
    return key


def unreadable_runs(
    view: BatchView, ranges: Ranges
) -> list[tuple[tuple[int, int], TernError | None]]:
    """The same rows in runs that have one thing in common: they can be read, or why they cannot."""
    runs: list[tuple[tuple[int, int], TernError | None]] = []
    for first, end in ranges:
        at = first
        while at < end:
            why, stop = view.why_closed(at), at + 1
            while stop < end and view.why_closed(stop) is why:
                stop += 1
            runs.append(((at, stop), why))
            at = stop
    return runs


def closed_outcome(why: TernError) -> Outcome:
    """What becomes of a message that a consumer cannot read."""
    if isinstance(why, Erased):
        return ACK
    if isinstance(why, Corrupt):
        return reject_outcome(f"its body cannot be read: {why.message}")
    return retry_outcome(None, why.message)
