"""Opens the encrypted bodies of a batch, row by row, with keys that are handed in.

Which rows: those that were delivered, since the bodies of others may have been left at the broker.
What cannot be opened (its key was erased, or is not here, or bytes were changed) becomes an error
in its place, so that one bad row harms no other. A key of another topic opens nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.properties import PropertyValue
from ternmq.batch.readability import read_or
from ternmq.batch.seal import OpenedBodies, key_of
from ternmq.batch.view import BatchView
from ternmq.client.model.delivery import ACK, BACK, Outcome, reject_outcome, retry_outcome
from ternmq.core.errors import Corrupt, Erased, TernError
from ternmq.discovery.hidden_topics import plain_name
from ternmq.security.sealing.data_key import DataKey

ORIGIN_TOPIC = "%topic"
RowRanges = Sequence[tuple[int, int]]
KeyName = tuple[str, int]
"""The topic that a key shall be of, and its number. Never the number alone: who may write to one
topic could spoil what is known of the keys of others."""
FindKey = Callable[[KeyName], DataKey]
"""That key; raises `Erased` or `KeyNotFound`."""
Opener = Callable[[bytes, bytes, bytes], bytes]
"""Takes ciphertext, seal and message id."""


def keys_of(view: BatchView) -> set[KeyName]:
    """The keys that its rows need."""
    owner = owner_of(view)
    try:
        seals = view.seals()
    except Corrupt:
        return set()  # `open_batch` says so of each row.
    if owner is None:
        topic = plain_name(view.topic)
        return {(topic, key_of(seal)) for seal in seals if seal is not None}
    rows = (view.sequences() - view.base_sequence).tolist()
    return {
        (owner(row), key_of(seal))
        for row, seal in zip(rows, seals, strict=True)
        if seal is not None
    }


def open_batch(view: BatchView, ranges: RowRanges, find: FindKey) -> OpenedBodies:
    """Put what the encrypted bodies of these rows say into the view. Never raises: what cannot be
    read says why when it is read."""
    try:
        found: list[Any] = list(view.bodies())
        seals, owner, id_of = view.seals(), owner_of(view), _ids(view)
    except Corrupt as error:
        opened = OpenedBodies([error] * view.count)
        view.put_bodies(opened)
        return opened
    topic = plain_name(view.topic)
    openers: dict[KeyName, Opener] = {}
    for first, end in ranges:
        for row in range(first, end):
            at = view.place(row)
            seal = seals[at]
            if seal is None:
                continue
            name = (topic if owner is None else owner(row)), key_of(seal)
            opener = openers.get(name)
            if opener is None:
                opener = openers[name] = _opener(name, find)
            try:
                found[at] = opener(found[at], seal, id_of(row))
            except TernError as error:
                found[at] = error
    opened = OpenedBodies(found)
    view.put_bodies(opened)
    return opened


def owner_of(view: BatchView) -> Callable[[int], str] | None:
    """Under a key of which topic the body of a row may be, where that is not the topic of the batch
    (None): the one from which a copy says that it came, as dead letters and replays do."""
    names = view.buffer(Column.PROPERTIES, ColumnPart.NAME_DATA)
    if names is None or ORIGIN_TOPIC.encode() not in bytes(names):
        return None
    topic = plain_name(view.topic)
    none: dict[str, PropertyValue] = {}
    return lambda row: str(read_or(view.properties, row, none).get(ORIGIN_TOPIC, topic))


def _ids(view: BatchView) -> Callable[[int], bytes]:
    """The ids of rows as bytes; where the producer's numbers make them, without a look at each."""
    if view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is not None:
        return view.id_bytes
    first = view.producer.message_id(view.first_sequence)
    return lambda row: (first + row).to_bytes(16, "big")


def _opener(name: KeyName, find: FindKey) -> Opener:
    """Opens bodies under that key, or raises for each why not, always the same error."""
    try:
        key = find(name)
        if key.topic != name[0]:
            raise Corrupt(f"a body of topic {name[0]!r} is under a key of topic {key.topic!r}")
    except TernError as error:
        why = error

        def refuse(body: bytes, seal: bytes, message_id: bytes) -> bytes:
            raise why

        return refuse
    return key.decrypt


def unreadable_runs(
    view: BatchView, ranges: RowRanges
) -> list[tuple[tuple[int, int], TernError | None]]:
    """The same rows in runs that have one thing in common: they can be read, or why they cannot."""
    if view.opened is None or not view.opened.failed:
        return [(each, None) for each in ranges]
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
    if why.details.get("in_vain"):
        return BACK  # Nobody answered: no fault of the message, and no attempt.
    return retry_outcome(None, why.message)
