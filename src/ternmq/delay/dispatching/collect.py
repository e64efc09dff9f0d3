"""Builds the batch that goes to a broker from rows that are due. Blocks, on a worker thread.

Rows of one record are one piece of work for numpy, whatever their order. A batch ends where its
bodies reach `BODIES_SIZE`, so that it fits a frame; what is left over waits for the next one. Rows
whose record cannot be read are told apart: they cost only themselves. So are rows with order keys
that lie on another broker group than the one that the batch is for.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ternmq.batch.encoder import Origin
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, DiskFailed
from ternmq.core.ids import ProducerId
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.work import RowPlace
from ternmq.wire.messages.hello import DISPATCHER

log = get_logger()

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
    taken: list[np.ndarray] = []
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
            view = store.record(place.hour, place.offset, place.size)
        except (Corrupt, DiskFailed) as problem:
            log.error(
                "messages cannot be dispatched: their bytes cannot be read",
                hour=place.hour,
                rows=len(place.rows),
                reason=problem.message,
            )
            unreadable.append(place.rows)
            continue
        if destination is not None and view.buffer(Column.ORDER_KEY, ColumnPart.DATA) is not None:
            here, wanted = _sorted_out(view, place, destination, wanted)
            if not here.all():
                elsewhere.append(place.rows[~here])
                place = place._replace(rows=place.rows[here])
            if not len(place.rows):
                continue
        rows = place.rows.astype(np.int64) - place.first_row
        packed = view.buffer(Column.BODY, ColumnPart.OFFSETS)
        assert packed is not None
        offsets = np.frombuffer(packed, "<i4")
        ends = np.cumsum(offsets[rows + 1].astype(np.int64) - offsets[rows])
        fits = int(np.searchsorted(ends, room, side="right"))
        fits = max(fits, 0 if chosen else 1)
        if fits < len(rows):
            left.append(place.rows[fits:])
            rows, room = rows[:fits], 0
        else:
            room -= int(ends[-1])
        if fits:
            chosen.append(ChosenRows(view, rows))
            taken.append(place.rows[:fits])
    batch = None
    if chosen:
        origin = Origin(topic=chosen[0].view.topic, app=DISPATCHER, producer=producer)
        batch = _merged(chosen, origin, first_sequence)
    return Collected(batch, _join(taken), _join(left), _join(unreadable), _join(elsewhere), wanted)


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
