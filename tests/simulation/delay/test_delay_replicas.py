"""A delay server with replicas through power cuts, promotions, cuts and bases (issue 7, design 9).

The promises are those of `test_delay_crashes`, whoever leads: no message reaches a broker twice,
early, or after it was cancelled; none that was acknowledged is missing after two years; the ledger
adds up at every start and is the same on every member at the end.
"""

import os
from pathlib import Path

import pytest

from ternmq.delay.store import loader, wal
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.log.segmented_log import SegmentedLog
from tests.simulation.delay.delay_group import SEGMENT_SIZE, GroupLife

STEPS = 50


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that are trimmed soon, so that replicas come too late."""

    def small(
        disk: Disk,
        directory: Path,
        *,
        segment_size: int,
        room: int = 0,
        mark: LogMark | None = None,
    ) -> SegmentedLog:
        return SegmentedLog(disk, directory, segment_size=SEGMENT_SIZE, room=room, mark=mark)

    monkeypatch.setattr(wal, "SegmentedLog", small)
    monkeypatch.setattr(loader, "SegmentedLog", small)


def live(seed: int, steps: int) -> GroupLife:
    life = GroupLife(seed)
    for _ in range(steps):
        life.step()
    life.finish()
    return life


@pytest.mark.parametrize("seed", range(10))
def test_whoever_leads_each_message_goes_out_exactly_once(seed: int) -> None:
    assert live(seed, STEPS).promotions


def test_a_base_in_which_nothing_is_scheduled_is_not_taken_for_a_very_old_directory() -> None:
    """A replica that got one began its journal behind the master's: it had no decision, and led."""
    live(2_050, 3 * STEPS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_000 + int(os.environ.get("SEEDS", "400"))))
def test_whoever_leads_each_message_goes_out_exactly_once_in_many_lives(seed: int) -> None:
    live(seed, 3 * STEPS)
