"""A master compares with each member that comes: who has what was acknowledged and is not here?"""

from typing import Any

import pytest

from ternmq.core.errors import NotMaster
from ternmq.replication.leading.in_sync_set import Proposal, Rules
from ternmq.replication.leading.leader import Leader
from ternmq.wire.messages.replication import Follow, LogHeld
from ternmq.wire.messages.standings import Member, Standing

ME, OTHER = "a" * 16, "b" * 16
EPOCH = 3
PEER: Any = type("Silent", (), {"push": None, "close": lambda peer, error=None: None})()


class Log:
    """Ends somewhere."""

    start_offset = 0

    def __init__(self, end: int) -> None:
        self.end = end

    def read_raw(self, offset: int, size: int) -> bytes:
        raise AssertionError("nothing is read")


class History:
    """This leadership began at these ends."""

    def __init__(self, messages: int, records: int) -> None:
        self._begun = {0: messages, 1: records}

    def starts(self, log: int) -> list[tuple[int, int]]:
        return [(2, 0), (EPOCH, self._begun[log])]

    def base(self) -> bytes:
        return b""


def leader(*, begun: tuple[int, int], ends: tuple[int, int], waits: bool = True) -> Leader:
    async def change(proposal: Proposal) -> Standing:
        raise AssertionError("nothing changes")

    async def look() -> Standing:
        return standing

    members = [Member(id=each, name=each, address="h:1") for each in (ME, OTHER)]
    standing = Standing(
        broker_group="main",
        version=1,
        epoch=EPOCH,
        master=ME,
        in_sync=[ME],
        members=members,
        waits=waits,
    )
    logs = {0: Log(ends[0]), 1: Log(ends[1])}
    return Leader(
        ME,
        standing,
        logs=logs,
        history=History(*begun),
        change=change,
        look=look,
        rules=Rules(wait=waits),
    )


def follow(*, end: int, safe: int, member: str = OTHER) -> Follow:
    """A member whose message log is longer; its records are the same."""
    return Follow(
        broker_group="main",
        member=member,
        epoch=EPOCH,
        logs=[
            LogHeld(log=0, start=0, end=end, safe=safe, epochs=[(2, 0)]),
            LogHeld(log=1, start=0, end=40, safe=40, epochs=[(2, 0)]),
        ],
    )


async def test_a_master_makes_room_for_one_that_has_all_that_counts_and_more() -> None:
    here = leader(begun=(100, 40), ends=(100, 40))
    with pytest.raises(NotMaster, match="makes room"):
        await here.follow(PEER, follow(end=900, safe=800))
    assert here.gives_way_to == OTHER
    assert here.ended.done(), "nothing counts any more"


@pytest.mark.parametrize(
    ("begun", "ends"), [((100, 40), (300, 40)), ((100, 40), (100, 90)), ((100, 60), (100, 60))]
)
async def test_it_goes_on_where_something_counted_here_that_the_other_lacks(
    begun: tuple[int, int], ends: tuple[int, int]
) -> None:
    """Messages, or records, or what it had before: a person has to choose."""
    here = leader(begun=begun, ends=ends)
    here._update()
    await here.follow(PEER, follow(end=900, safe=800))
    assert not here.ended.done() and OTHER in here.lacks and "promote" in here.lacks


async def test_what_was_never_acknowledged_is_cut_off_as_ever() -> None:
    here = leader(begun=(100, 40), ends=(100, 40))
    followed = await here.follow(PEER, follow(end=900, safe=100))
    assert [plan.cut_to for plan in followed.logs] == [100, 40]
    assert not here.lacks


async def test_nobody_else_makes_a_master_step_down() -> None:
    """Not a stranger, and not where masters do not wait for their replicas."""
    for here, member in (
        (leader(begun=(100, 40), ends=(100, 40)), "c" * 16),
        (leader(begun=(100, 40), ends=(100, 40), waits=False), OTHER),
    ):
        await here.follow(PEER, follow(end=900, safe=800, member=member))
        assert not here.ended.done() and not here.lacks
