"""When a segment may go."""

import pytest

from ternmq.core.errors import Corrupt
from ternmq.core.units import HOUR_MS
from ternmq.storage.files import log_start
from ternmq.storage.files.log_start import LogStart
from ternmq.storage.log.retention_rules import (
    Moment,
    RetentionRules,
    Segment,
    reason_to_drop,
    used_percent,
)

NOW = 1_000 * HOUR_MS + 5 * HOUR_MS
OLD = Segment(0, 100, NOW - 73 * HOUR_MS)
YOUNG = Segment(0, 100, NOW - 71 * HOUR_MS)


def moment(*, size: int = 100, used: float = 10.0) -> Moment:
    return Moment(NOW, size, used)


def test_a_segment_goes_by_the_age_of_its_last_message() -> None:
    """R16: 72 h by default."""
    assert reason_to_drop(OLD, moment(), RetentionRules()) == "age"
    assert reason_to_drop(YOUNG, moment(), RetentionRules()) is None
    assert reason_to_drop(OLD, moment(), RetentionRules(age_ms=0)) is None


def test_expired_segments_may_have_an_hour_of_their_own_unless_the_disk_fills_up() -> None:
    """R16: deleted at an hour of the day, or when the disk passes a mark."""
    hour = NOW // HOUR_MS % 24
    elsewhere = RetentionRules(hour=(hour + 1) % 24)

    assert reason_to_drop(OLD, moment(), RetentionRules(hour=hour)) == "age"
    assert reason_to_drop(OLD, moment(), elsewhere) is None
    assert reason_to_drop(OLD, moment(used=75.0), elsewhere) == "age"
    assert reason_to_drop(YOUNG, moment(used=84.9), elsewhere) is None


def test_the_log_has_a_size_and_the_disk_a_mark() -> None:
    assert reason_to_drop(YOUNG, moment(size=101), RetentionRules(size=100)) == "size"
    assert reason_to_drop(YOUNG, moment(size=100), RetentionRules(size=100)) is None
    assert reason_to_drop(YOUNG, moment(used=85.0), RetentionRules()) == "disk"


def test_how_full_a_disk_is() -> None:
    assert used_percent(25, 100) == 75.0
    assert used_percent(0, 0) == 0.0


@pytest.mark.parametrize("cut", [0, 8, 23, 30, 39])
def test_a_floor_file_that_is_not_whole_is_not_believed(cut: int) -> None:
    with pytest.raises(Corrupt):
        log_start.decode(log_start.encode(LogStart(8, {1: 2}))[:cut])
