"""Letters sent again at a rate: held within the second, stopped in between (P6)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from ternmq.pipeline.jobs import dead_letters
from ternmq.wire.messages.dead_letters import DeadDone


class Rows:
    """Chosen letters of one group."""

    def __init__(self, count: int) -> None:
        self._count = count

    def select(self, *_: str) -> "Rows":
        return self

    def toLocalIterator(self) -> Any:  # noqa: N802
        return iter(
            [
                {"group": "g", "broker_group": "main", "letter": number}
                for number in range(self._count)
            ]
        )


def test_a_rate_holds_from_the_first_second_and_a_stop_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not a thousand at once, and then a long sleep."""
    sent: list[int] = []

    def resend(_: str, ranges: list[tuple[int, int]], broker_group: str) -> DeadDone:
        assert broker_group == "main"
        sent.append(sum(end - first for first, end in ranges))
        return DeadDone(handled=sent[-1], failed=[])

    monkeypatch.setattr(
        dead_letters, "cluster", lambda _: SimpleNamespace(resend_dead_letters=resend)
    )
    monkeypatch.setattr(dead_letters, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=abs))

    done = dead_letters.redrive(
        cast(DataFrame, Rows(3_000)),
        "",
        rate=50,
        on_progress=lambda *_: None,
        stopping=lambda: len(sent) == 4,
    )

    assert sent == [10] * 4
    assert done == (40, [])
