"""How long a connection rests after what it settled, so that others have the broker meanwhile."""

from typing import Any, Literal

import pytest

from ternmq.broker.consuming import _rest
from ternmq.client.dones import TAKEN_OTHERS_MAX
from ternmq.wire.commands import Done


class Resting:
    """A peer that only notes for how long it is to rest."""

    seconds = 0.0

    def rest(self, seconds: float) -> None:
        self.seconds = seconds


def rest_after(kind: Literal["ack", "retry"], count: int) -> float:
    peer: Any = Resting()
    _rest(peer, [Done(lease=1, first=2 * at, end=2 * at + 1, kind=kind) for at in range(count)])
    return float(peer.seconds)


def test_who_fails_rows_by_the_hundred_leaves_most_of_the_loop_to_others() -> None:
    """One costs about 20 microseconds, and one request of them no more than some milliseconds."""
    assert rest_after("retry", TAKEN_OTHERS_MAX) == pytest.approx(TAKEN_OTHERS_MAX * 80e-6)
    assert TAKEN_OTHERS_MAX * 20e-6 < 0.005


def test_single_failures_and_acks_do_not_rest() -> None:
    assert rest_after("retry", 50) == 0
    assert rest_after("ack", 100) == 0
    assert 0 < rest_after("ack", 1_000) < 0.02
