"""Opens the encrypted bodies of a batch, row by row, with keys that are handed in.

Which rows: those that were delivered, since the bodies of others may have been left at the broker.
What cannot be opened (its key was erased, or is not here, or bytes were changed) becomes an error
in its place, so that one bad row harms no other. A key of another topic opens nothing.
"""

from collections.abc import Callable, Sequence

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.seal import OpenedBodies, key_of
from ternmq.batch.view import BatchView
from ternmq.client.model.delivery import ACK, Outcome, reject_outcome, retry_outcome
from ternmq.core.errors import Corrupt, Erased, TernError
from ternmq.discovery.hidden_topics import plain_name
from ternmq.security.sealing.data_key import DataKey

ORIGIN_TOPIC = "%topic"
Ranges = Sequence[tuple[int, int]]
KeyName = tuple[str, int]
"""The topic that a key shall be of, and its number. Never the number alone: who may write to one
topic could spoil what is known of the keys of others."""
FindKey = Callable[[KeyName], DataKey]
"""That key; raises `Erased` or `KeyNotFound`."""


def keys_of(view: BatchView) -> set[KeyName]:
    """The keys that its rows need."""
    owner = owner_of(view)
    rows = (view.sequences() - view.base_sequence).tolist()
    return {
        (owner(row), key_of(seal))
        for row, seal in zip(rows, view.seals(), strict=True)
        if seal is not None
    }


def open_batch(view: BatchView, ranges: Ranges, find: FindKey) -> OpenedBodies:
    """Put what the encrypted bodies of these rows say into the view. Never raises: what cannot be
    read says why when it is read."""
    try:
        bodies, seals = view.bodies(), view.seals()
    except Corrupt as error:
        opened = OpenedBodies([error] * view.count)
        view.put_bodies(opened)
        return opened
    opened, owner = OpenedBodies(bodies), owner_of(view)
    keys: dict[KeyName, DataKey | TernError] = {}
    for first, end in ranges:
        for row in range(first, end):
            at = view.place(row)
            seal = seals[at]
            if seal is None:
                continue
            name = owner(row), key_of(seal)
            if name not in keys:
                keys[name] = _found(name, find)
            opened[at] = _opened(keys[name], name[0], bodies[at], seal, view.id_bytes(row))
    view.put_bodies(opened)
    return opened


def owner_of(view: BatchView) -> Callable[[int], str]:
    """Says of each row under a key of which topic its body may be: its own, or the one from which a
    copy says that it came (a dead letter, a replay)."""
    topic = plain_name(view.topic)
    names = view.buffer(Column.PROPERTIES, ColumnPart.NAME_DATA)
    if names is None or ORIGIN_TOPIC.encode() not in bytes(names):
        return lambda row: topic
    return lambda row: str(view.properties(row).get(ORIGIN_TOPIC, topic))


def _found(name: KeyName, find: FindKey) -> DataKey | TernError:
    try:
        return find(name)
    except TernError as error:
        return error


def _opened(
    key: DataKey | TernError, owner: str, body: bytes, seal: bytes, message_id: bytes
) -> bytes | TernError:
    if isinstance(key, TernError):
        return key
    if key.topic != owner:
        return Corrupt(f"a body of topic {owner!r} is under key {key.id}, of topic {key.topic!r}")
    try:
        return key.decrypt(body, seal, message_id)
    except TernError as error:
        return error


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
