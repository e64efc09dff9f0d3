"""Builds the batch that goes to a broker from rows that are due. Blocks, on a worker thread.

Rows of one record are one piece of work for numpy, whatever their order. A batch ends where its
bodies reach `BODIES_SIZE`, so that it fits a frame; what is left over waits for the next one. Rows
whose record cannot be read are told apart: they cost only themselves. So are rows with order keys
that lie on another broker group than the one that the batch is for.

The bytes of a record may be sound and its columns still not: older releases took what no broker
takes now (`batch.readability`). So a batch is looked at before it goes out. If it cannot be made,
or no broker would take it, each record is tried by itself, and those that fail are left out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.readability import reason_of, why_unreadable
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, TooLarge
from ternmq.core.ids import ProducerId
from ternmq.core.units import MIB
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.dispatch_work import RowPlace
from ternmq.wire.messages.hello import DISPATCHER

BODIES_SIZE = 2 * MIB


class Collected(NamedTuple):
    """A batch of some of the rows that were asked for."""

    batch: bytearray | None
    rows: np.ndarray
    left: np.ndarray
    """Did not fit."""
    unreadable: np.ndarray
    elsewhere: np.ndarray
    """Their order keys lie on another group, or their slots move."""
    wanted: str | None = None
    """That other group, of one of them."""


class Destination(NamedTuple):
    """Which group a batch is for, and which group has which order key; see `Cluster.slot_owner`."""

    group: str
    owner: Callable[[str, str], str | None]


def collect(
    store: DelayStore,
    places: Sequence[RowPlace],
    producer: ProducerId,
    first_sequence: int,
    size_max: int | None = BODIES_SIZE,
    destination: Destination | None = None,
) -> Collected:
    """One batch, about `size_max` bytes of bodies; None takes all rows whatever their size."""
    chosen: list[ChosenRows] = []
    taken: list[RowPlace] = []
    left: list[np.ndarray] = []
    unreadable: list[np.ndarray] = []
    elsewhere: list[np.ndarray] = []
    wanted: str | None = None
    room = size_max if size_max is not None else 2**62
    for place in places:
        if room <= 0:
            left.append(place.rows)
            continue
        try:
            view, here, wanted = _read(store, place, destination, wanted)
            rows = place.rows[here].astype(np.int64) - place.first_row
            ends = np.cumsum(_body_sizes(view, rows))
        except Exception as problem:
            store.unreadable.note(place.hour, place.offset, len(place.rows), reason_of(problem))
            unreadable.append(place.rows)
            continue
        if len(rows) < len(place.rows):
            elsewhere.append(place.rows[~here])
            place = place._replace(rows=place.rows[here])
            if not len(rows):
                continue
        fits = int(np.searchsorted(ends, room, side="right"))
        fits = max(fits, 0 if chosen else 1)
        if fits < len(rows):
            left.append(place.rows[fits:])
            rows, room = rows[:fits], 0
        else:
            room -= int(ends[-1])
        if fits:
            chosen.append(ChosenRows(view, rows))
            taken.append(place._replace(rows=place.rows[:fits]))
    batch = None
    if chosen:
        origin = Origin(topic=chosen[0].view.topic, app=DISPATCHER, producer=producer)
        try:
            # One of an earlier life goes out as it did then.
            make = _merged if size_max is None else _checked
            batch = make(chosen, origin, first_sequence)
        except Exception:
            good = _sound(store, chosen, taken, origin)
            unreadable += [each.rows for each, sound in zip(taken, good, strict=True) if not sound]
            chosen = [each for each, sound in zip(chosen, good, strict=True) if sound]
            taken = [each for each, sound in zip(taken, good, strict=True) if sound]
            batch, taken, more = _as_far(chosen, taken, origin, first_sequence)
            left = more + left
    went = _join([each.rows for each in taken])
    return Collected(batch, went, _join(left), _join(unreadable), _join(elsewhere), wanted)


def _read(
    store: DelayStore, place: RowPlace, destination: Destination | None, wanted: str | None
) -> tuple[BatchView, np.ndarray, str | None]:
    """A record, which of its rows may go to this group, and where one of the others wants to go."""
    view = store.record(place.hour, place.offset, place.size)
    if destination is None or view.buffer(Column.ORDER_KEY, ColumnPart.DATA) is None:
        return view, np.ones(len(place.rows), bool), wanted
    return view, *_sorted_out(view, place, destination, wanted)


def _body_sizes(view: BatchView, rows: np.ndarray) -> np.ndarray:
    packed = view.buffer(Column.BODY, ColumnPart.OFFSETS)
    if packed is None:
        raise Corrupt("the batch has no bodies")
    offsets = np.frombuffer(packed, "<i4").astype(np.int64)
    sizes: np.ndarray = offsets[rows + 1] - offsets[rows]
    return sizes


def _checked(chosen: Sequence[ChosenRows], origin: Origin, first_sequence: int) -> bytearray:
    """The batch as a broker takes it; raises where it cannot be made, or would be refused."""
    batch = _merged(chosen, origin, first_sequence)
    check_incoming(batch)
    return batch


def _sound(
    store: DelayStore, chosen: Sequence[ChosenRows], places: Sequence[RowPlace], origin: Origin
) -> list[bool]:
    """Which records can go out; the others are noted. Only when something is wrong: it is slow."""
    good: list[bool] = []
    for each, place in zip(chosen, places, strict=True):
        try:
            reason = why_unreadable(each.view)
            if not reason:
                _checked([each], origin, 0)
        except TooLarge as problem:  # Its rows go out in parts, but for one alone.
            reason = "" if len(each.rows) > 1 else reason_of(problem)
        except Exception as problem:
            reason = reason_of(problem)
        if reason:
            store.unreadable.note(place.hour, place.offset, len(place.rows), reason)
        good.append(not reason)
    return good


def _as_far(
    chosen: list[ChosenRows], places: list[RowPlace], origin: Origin, first_sequence: int
) -> tuple[bytearray | None, list[RowPlace], list[np.ndarray]]:
    """A batch of as much as fits of sound records, what is in it, and which rows are left: half
    of the records, or of the rows of the only one, until it is small enough."""
    left: list[np.ndarray] = []
    while chosen:
        try:
            return _checked(chosen, origin, first_sequence), places, left
        except Exception:
            if len(chosen) == len(chosen[0].rows) == 1:
                raise
        half = max(1, len(chosen) // 2)
        if len(chosen) > 1:
            left = [each.rows for each in places[half:]] + left
            chosen, places = chosen[:half], places[:half]
        else:
            [(view, rows)], [place] = chosen, places
            half = len(rows) // 2
            left = [place.rows[half:], *left]
            chosen = [ChosenRows(view, rows[:half])]
            places = [place._replace(rows=place.rows[:half])]
    return None, [], left


def _sorted_out(
    view: BatchView, place: RowPlace, destination: Destination, wanted: str | None
) -> tuple[np.ndarray, str | None]:
    """Which rows of a place may go to this group; where one of the others wants to go."""
    keys, topic = view.order_keys(), view.topic
    here = np.ones(len(place.rows), bool)
    for at, row in enumerate((place.rows.astype(np.int64) - place.first_row).tolist()):
        key = keys[row]
        owner = destination.group if key is None else destination.owner(topic, key)
        if owner != destination.group:
            here[at] = False
            wanted = owner or wanted
    return here, wanted


def _merged(chosen: Sequence[ChosenRows], origin: Origin, first_sequence: int) -> bytearray:
    """One batch in the order of `chosen`; each record is gone through once."""
    by_view: dict[int, list[tuple[int, ChosenRows]]] = {}
    at = 0
    for each in chosen:
        by_view.setdefault(id(each.view), []).append((at, each))
        at += len(each.rows)
    if len(by_view) == len(chosen):
        return merge(chosen, origin=origin, first_sequence=first_sequence)
    grouped = [
        ChosenRows(parts[0][1].view, np.concatenate([part.rows for _, part in parts]))
        for parts in by_view.values()
    ]
    places = np.concatenate(
        [np.arange(at, at + len(part.rows)) for parts in by_view.values() for at, part in parts]
    )
    batch = merge(grouped, origin=origin, first_sequence=first_sequence)
    return take(BatchView(batch), np.argsort(places))


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32)
