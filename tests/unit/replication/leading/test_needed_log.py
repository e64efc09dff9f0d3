"""What of its logs a master keeps for members that lag behind, or are away."""

import asyncio

from ternmq.replication.config import ReplicaLost
from ternmq.replication.leading.in_sync_set import Proposal, Rules
from ternmq.replication.leading.leader import Leader
from ternmq.wire.messages.standings import Member, Standing

ME, OTHER, THIRD = "a" * 16, "b" * 16, "c" * 16


class Log:
    """Begins and ends somewhere."""

    def __init__(self, start: int, end: int) -> None:
        self.start_offset = start
        self.end = end

    def read_raw(self, offset: int, size: int) -> bytes:
        raise AssertionError("nobody follows")


class NoHistory:
    def starts(self, log: int) -> list[tuple[int, int]]:
        return []

    def base(self) -> bytes:
        return b""


def leader(*members: str) -> Leader:
    async def change(proposal: Proposal) -> Standing:
        raise AssertionError("nothing changes")

    async def look() -> Standing | None:
        raise AssertionError("nobody doubts")

    standing = Standing(
        broker_group="later",
        kind="delay",
        version=1,
        epoch=3,
        master=ME,
        in_sync=[ME],
        members=[Member(id=each, name=each, address="h:1") for each in members],
    )
    return Leader(
        ME,
        standing,
        logs={0: Log(100, 900), 1: Log(10, 40)},
        history=NoHistory(),
        change=change,
        look=look,
        rules=Rules(lost=ReplicaLost.CONTINUE),
    )


def test_a_master_without_other_members_keeps_nothing_for_them() -> None:
    async def run() -> dict[int, int]:
        return leader(ME).needed(1_000)

    assert asyncio.run(run()) == {}


def test_what_a_member_has_is_not_known_before_it_comes_so_everything_is_kept() -> None:
    async def run() -> dict[int, int]:
        return leader(ME, OTHER).needed(10_000)

    assert asyncio.run(run()) == {0: 100, 1: 10}


def test_the_member_that_is_furthest_behind_counts_but_not_for_more_than_the_limit() -> None:
    async def run() -> list[dict[int, int]]:
        leads = leader(ME, OTHER, THIRD)
        leads.expect(OTHER, {0: 800, 1: 40})
        leads.expect(THIRD, {0: 300, 1: 40})
        return [leads.needed(10_000), leads.needed(200)]

    assert asyncio.run(run()) == [{0: 300, 1: 40}, {0: 700, 1: 40}]
