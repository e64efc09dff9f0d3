"""Plans of replays: two runs that begin at the same moment, two archives with one name (P5)."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ternmq.core.errors import Unavailable
from ternmq.pipeline.archive.log import MESSAGES, ArchivePlace, ArchiveState, Watermark
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
from ternmq.pipeline.jobs.replay_plan import ReplayPlan


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
            name="r",
            topic="t",
            to_topic="u",
            batch_rows=batch_rows,
            ends={"main": 9},
            targets={"main": "main"},
        )
        Replayer._pin(cast(Replayer, Run("r", store, plan)))

    pin(100)
    pin(100)
    with pytest.raises(Unavailable, match="begun by another run just now"):
        pin(50)


def test_the_same_sequences_of_another_cluster_or_topic_are_other_messages(tmp_path: Path) -> None:
    """Else the broker took them for those that were sent, and passed them over in silence."""
    store = ArchiveStore(str(tmp_path / "a"))
    store.prepare("here")

    def source(origin: str, topic_id: int) -> str:
        place = ArchivePlace(MESSAGES, "t", "main")
        run = SimpleNamespace(
            name="r",
            _store=store,
            _origin=origin,
            _job=ReplayJob(url="", archive="a", topic="t", to_topic="u"),
            _cluster=SimpleNamespace(id=lambda: "here", broker_groups=lambda: ["main"]),
            _state=ArchiveState(marks={place: Watermark(0, 9, 0, topic_id)}),
        )
        return Replayer._planned(cast(Replayer, run)).sources["main"]

    assert source("here", 1) == source("here", 1)
    assert len({source("here", 1), source("there", 1), source("here", 2)}) == 3
