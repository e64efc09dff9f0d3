"""A hot hour loads in bounded memory, in steps, and what is due meanwhile goes out (Q7, R7).

Issue 4: ten million messages due in one hour load without stalling ticks or producers. `make test`
takes some hundred thousand of them; all ten million are marked long.
"""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.ids import ProducerId
from ternmq.core.units import HOUR_MS, MIB
from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.delay.store.schedule_log import LOAD_SIZE, RECORDS_MAX
from ternmq.delay.timing import wheel as wheel_module
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.wheel import RUN_ROWS_MAX, Wheel
from ternmq.storage.files.disk import RealDisk
from ternmq.storage.log.append import Append
from ternmq.testing import TurnedClock

START_MS = 1_800_000_000_000
LIST = 4_000
STEP_ROWS_MAX = LOAD_SIZE // 100  # A body of a hundred bytes needs more than that.
WORK_MEMORY = 2 * LOAD_SIZE + 48 * STEP_ROWS_MAX + 24 * 2 * RUN_ROWS_MAX
"""One step: what is read and parsed, its rows while they are sorted, and a merge of runs."""


class Hot:
    """A data directory whose next hour is full."""

    def __init__(self, directory: Path) -> None:
        self.clock = TurnedClock(START_MS)
        self.chance = np.random.default_rng(1)
        following = FollowingStore.open(
            RealDisk(),
            DelayPaths(directory),
            clock=self.clock,
            hour_ms=HOUR_MS,
            segment_size=2**28,
            min_free=0,
        )
        self.leading = following.lead()
        self.store = following.store
        self.engine = Engine(self.leading, hour_ms=HOUR_MS, fragments=8)
        self._sent = 0

    def send(self, dues: np.ndarray, times: int = 1) -> None:
        """The same bodies and due times `times` times, as so many batches of one producer."""
        rows = [Outgoing(body=b"x" * 100, due_at_ms=due) for due in dues.tolist()]
        origin = Origin(topic="t", app="shop", producer=ProducerId(START_MS, 1))
        appends: list[Append] = []
        for _ in range(times):
            batch = encode_messages(rows, origin=origin, first_sequence=self._sent)
            appends.append(
                Append(
                    batch=batch,
                    topic_id=1,
                    count=len(rows),
                    received_at_ms=START_MS,
                    producer=check_incoming(batch).producer,
                    first_sequence=self._sent,
                )
            )
            self._sent += len(rows)
        messages = self.store.wal.messages
        staged = messages.stage(appends)
        messages.write(staged)
        messages.commit(staged)

    def schedule(self) -> None:
        while self.engine.hours.scheduled_to < self.store.wal.messages.safe_offset:
            self.engine.scheduled(self.leading.schedule(self.engine.near.starts()))

    def fill(self, rows: int) -> int:
        """So many rows at random within the hour after the next; returns its start."""
        hour = START_MS - START_MS % HOUR_MS + 2 * HOUR_MS
        for _ in range(0, rows, 5 * LIST):
            self.send(hour + self.chance.integers(0, HOUR_MS, LIST), times=5)
            self.schedule()
        return hour


def _check(directory: Path, rows: int) -> None:
    hot = Hot(directory)
    start = hot.fill(rows)
    hot.send(START_MS + 60_000 + np.arange(3_000) * 100)  # In each tick one is due.
    hot.schedule()
    engine, leading = hot.engine, hot.leading
    soon = engine.near.wanted(START_MS + 30 * 60_000)
    assert soon is not None
    assert soon.start != start, "nothing of the hot hour is due soon"
    engine.near.begin(soon, leading.read_book(soon.start, soon.rows))
    while not soon.loaded:
        assert soon.index is not None
        engine.near.loaded(soon, leading.load(soon.start, soon.index.end))
    hot.clock.turn(60.0 - 0.1)
    engine.tick(hot.clock.now_ms(), hot.clock.monotonic())

    hour = engine.hours[start]
    tracemalloc.start()
    engine.near.begin(hour, leading.read_book(hour.start, hour.rows))
    steps = 0
    while not hour.loaded:
        assert hour.index is not None
        step = leading.load(hour.start, hour.index.end)
        assert len(step.entries) <= RECORDS_MAX
        assert step.upto - hour.index.end <= LOAD_SIZE
        assert len(step.rows) <= STEP_ROWS_MAX
        engine.near.loaded(hour, step)
        steps += 1
        if steps <= 2_900:
            hot.clock.turn(0.1)
            fired = engine.tick(hot.clock.now_ms(), hot.clock.monotonic())
            assert fired == 1, "a tick between two steps fires what is due in it"
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert steps >= rows // STEP_ROWS_MAX
    assert hour.rows == rows
    assert engine.wheel.size <= 12 * (rows + 3_000)
    records = rows // 100  # Pieces of 32 KiB have more rows than that.
    row_bytes = 12 + 1 + 12  # On the wheel, its state, the hash of an id that stands alone.
    assert kept <= row_bytes * rows + 40 * records + 4 * MIB, "bytes that a pending row takes"
    assert peak <= kept + WORK_MEMORY
    hot.store.close()


def test_a_hot_hour_loads_in_steps_and_ticks_go_on(tmp_path: Path) -> None:
    _check(tmp_path, 400_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_million_in_one_hour(tmp_path: Path) -> None:
    """Issue 4 names this number."""
    _check(tmp_path, 10_000_000)


def test_many_rows_are_added_to_the_wheel_by_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is full is never copied again, so no tick waits for a merge of millions."""
    full_at = 4_096
    monkeypatch.setattr(wheel_module, "RUN_ROWS_MAX", full_at)
    wheel, chance = Wheel(), np.random.default_rng(2)
    rows = 20 * full_at
    full: set[int] = set()
    for first in range(0, rows, full_at // 4):
        numbers = np.arange(first, first + full_at // 4, dtype=np.uint32)
        wheel.add(0, numbers, chance.integers(0, HOUR_MS, len(numbers)))
        runs = wheel._runs[0]
        assert full <= {id(run) for run in runs}, "a full run was merged again"
        full |= {id(run) for run in runs if len(run.rows) >= full_at}
        assert sum(len(run.rows) < full_at for run in runs) <= 8

    assert wheel.size == 12 * rows
    fresh, _ = wheel.pop(HOUR_MS, fresh_max=rows, late_max=0)
    late_only = wheel.pop(10 * HOUR_MS, fresh_max=0, late_max=2 * rows)[1]
    seen = np.concatenate([due.rows for due in [*fresh, *late_only]])
    assert len(np.unique(seen)) == len(seen) == rows
