"""A member that follows, with stand-ins around it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ternmq.core.errors import TernError, Unavailable
from ternmq.replication.roles import follower_role
from ternmq.replication.roles.follower_role import FollowerRole
from ternmq.wire.messages.standings import Member, Standing

ME = Member(id="11" * 8, name="me", address="127.0.0.1:1")
MINE = Standing(
    broker_group="main", version=5, epoch=7, master=ME.id, in_sync=[ME.id], members=[ME]
)


class Site(SimpleNamespace):
    """Asks meta to lead; the answers were thought of before."""

    def __init__(self, *answers: Standing | TernError) -> None:
        super().__init__(
            standing=MINE,
            me=ME.id,
            stop=asyncio.Event(),
            changed=asyncio.Event(),
            hello=None,
            member=SimpleNamespace(accepted_epoch=MINE.epoch),
            answers=list(answers),
            from_memory=False,
            unfit=False,
        )

    async def watch_files(self, look: Any) -> None:
        await asyncio.Event().wait()

    async def lost_files(self, look: Any) -> bool:
        return False

    async def lead(self) -> Standing:
        answer = self.answers.pop(0)
        if isinstance(answer, TernError):
            raise answer
        assert isinstance(answer, Standing)
        return answer


async def test_a_member_that_shall_lead_asks_until_meta_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_role, "AGAIN_S", 0.001)
    won = Standing(broker_group="main", version=6, epoch=8, master=ME.id, in_sync=[ME.id])
    site: Any = Site(Unavailable("the registry is away"), Unavailable("still away"), won)
    copying: Any = SimpleNamespace(on_safe=None, loops=lambda writer: {}, failed=None)
    store: Any = SimpleNamespace(
        logs={}, look=lambda: None, follower_service=lambda site, progress: copying
    )
    follower = FollowerRole(site, store)
    assert await follower.run() is won
    assert site.answers == [] and follower.trouble == "still away"


async def test_a_member_in_sync_leads_where_the_last_master_left_before_it_was_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_role, "AGAIN_S", 0.001)
    won = Standing(broker_group="main", version=8, epoch=9, master=ME.id, in_sync=[ME.id])
    site: Any = Site(won)
    site.config = SimpleNamespace(failover=True)
    site.standing = Standing(
        broker_group="main", version=7, epoch=8, master="", in_sync=[ME.id], members=[ME]
    )
    copying: Any = SimpleNamespace(on_safe=None, loops=lambda writer: {}, failed=None)
    store: Any = SimpleNamespace(
        logs={}, look=lambda: None, follower_service=lambda site, progress: copying
    )
    async with asyncio.timeout(5):
        assert await FollowerRole(site, store).run() is won


async def test_a_follower_names_its_broker_group_its_member_and_what_it_holds() -> None:
    """A master refuses FOLLOW from a server of another broker group: the name has to be there."""
    site: Any = Site()
    site.broker_group = "east"
    log = SimpleNamespace(start_offset=8, end=64, acknowledged=48, safe_offset=40)
    copying: Any = SimpleNamespace(on_safe=None, loops=lambda writer: {}, failed=None)
    store: Any = SimpleNamespace(
        logs={1: log},
        tables=lambda: {1: [(7, 8)]},
        look=lambda: None,
        follower_service=lambda site, progress: copying,
    )

    asked = FollowerRole(site, store)._ask(9)

    assert (asked.broker_group, asked.member, asked.epoch) == ("east", ME.id, 9)
    assert [(held.log, held.start, held.end, held.safe) for held in asked.logs] == [(1, 8, 64, 48)]
