"""Two runs of a replay begin at the same moment: one plan holds (P5)."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from ternmq.core.errors import Unavailable
from ternmq.pipeline.archive_store import ArchiveStore
from ternmq.pipeline.replay import Replayer
from ternmq.pipeline.replay_plan import ReplayPlan


@dataclass
class Run:
    """All of a replayer that pinning needs."""

    name: str
    _store: ArchiveStore
    _plan: ReplayPlan


def test_a_run_with_a_plan_of_its_own_stops_before_it_sends(tmp_path: Path) -> None:
    """Batches of other sizes under one name would not be recognised as sent."""
    store = ArchiveStore(str(tmp_path / "a"))
    store.prepare("here")

    def pin(batch_rows: int) -> None:
        plan = ReplayPlan(
            name="r", topic="t", to_topic="u", batch_rows=batch_rows, ends={"main": 9},
            targets={"main": "main"},
        )  # fmt: skip
        Replayer._pin(cast(Replayer, Run("r", store, plan)))

    pin(100)
    pin(100)
    with pytest.raises(Unavailable, match="begun by another run just now"):
        pin(50)
