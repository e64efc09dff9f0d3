"""What a member does about stored bytes that do not match their checksum, without files."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ternmq.core.errors import Corrupt, DiskFailed, Unavailable
from ternmq.replication.member import member_context
from ternmq.replication.member.group_record import has_company
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.member_events import MemberEvents
from ternmq.replication.member.role_switch import NoRole
from ternmq.storage.log.recovery_report import Hole, RecoveryReport
from ternmq.wire.messages.standings import Standing
from tests.waiting import until

DAMAGE = Corrupt("does not match its checksum")
SOUND = RecoveryReport()
ALONE = Standing(broker_group="main", version=5, epoch=7, master="me", in_sync=["me"])
PAIR = Standing(broker_group="main", version=5, epoch=7, master="me", in_sync=["me", "you"])
OUTSIDE = Standing(broker_group="main", version=7, epoch=7, master="you", in_sync=["you"])


class Steps:
    """The disk and the registry; writes down what they are told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.member = SimpleNamespace(id="me", damaged=False, accepted_epoch=7)
        self.failing = False

    async def note_damaged(self, damaged: bool) -> None:
        if self.failing:
            raise DiskFailed("no")
        self.member.damaged = damaged
        self.done.append("noted")

    async def note(self, standing: Standing) -> None:
        if self.failing:
            raise DiskFailed("no")

    async def change_in_sync(
        self, group: str, *, in_sync: list[str], version: int, **options: Any
    ) -> Standing:
        self.done.append(f"set is {' '.join(in_sync)}")
        return msgspec.structs.replace(PAIR, version=version + 1)

    async def leave_in_sync(self, group: str, me: str, epoch: int, *, kind: str) -> Standing:
        self.done.append("left")
        return OUTSIDE


class Hurt(MemberEvents):
    """A role that is told of damage."""

    def __init__(self, *, gives_way: bool) -> None:
        self.told: list[str] = []
        self._gives_way = gives_way

    def on_damage(self, reason: str) -> bool:
        self.told.append(reason)
        return self._gives_way


class Heard(MemberEvents):
    """A role that is told how the group stands."""

    def __init__(self) -> None:
        self.told: list[Standing] = []

    def on_standing(self, standing: Standing) -> None:
        self.told.append(standing)


def site(steps: Steps, standing: Standing) -> MemberContext:
    parts: Any = {
        "config": None,
        "place": SimpleNamespace(broker_group="main"),
        "directory": steps,
        "clock": None,
        "disk": None,
        "member": steps.member,
        "record": steps,
        "hello": None,
        "role_switch": SimpleNamespace(enter=lambda role, peers: None),
        "listener": SimpleNamespace(peers=[]),
        "join": None,
    }
    return MemberContext(kind="realtime", standing=standing, **parts)


@pytest.mark.parametrize(
    ("standing", "company"),
    [(ALONE, False), (PAIR, True), (OUTSIDE, True), (Standing(broker_group="main"), False)],
)
def test_company_is_whoever_else_has_everything(standing: Standing, company: bool) -> None:
    assert has_company(standing, "me") is company


async def test_what_others_have_is_not_called_lost() -> None:
    here, role = site(Steps(), PAIR), Hurt(gives_way=True)
    here.enter(NoRole(), role)
    said = await asyncio.to_thread(here.on_corrupt, DAMAGE)
    assert isinstance(said, Unavailable) and said.retryable
    await asyncio.sleep(0)
    assert role.told == [DAMAGE.message]
    assert here.unfit and here.changed.is_set()


async def test_what_nobody_else_has_is_lost_and_changes_nothing() -> None:
    steps = Steps()
    here = site(steps, ALONE)
    assert here.on_corrupt(DAMAGE) is DAMAGE
    await asyncio.sleep(0)
    assert not here.damaged
    steps.member.damaged = True  # Noted when it had company.
    assert not here.unfit
    assert not await here.leave_if_damaged(RecoveryReport(holes=[_hole()]))
    assert steps.done == []


async def test_nobody_steps_down_while_nobody_can_take_over_and_nothing_is_called_lost() -> None:
    here = site(Steps(), PAIR)
    here.enter(NoRole(), Hurt(gives_way=False))
    assert isinstance(here.on_corrupt(DAMAGE), Unavailable)
    await asyncio.sleep(0)
    assert not here.damaged and not here.unfit


@pytest.mark.parametrize("how", ["found by a reader", "noted before a restart", "found at start"])
async def test_a_damaged_member_notes_it_before_it_leaves(how: str) -> None:
    steps = Steps()
    here = site(steps, PAIR)
    here.damaged = how == "found by a reader"
    steps.member.damaged = how == "noted before a restart"
    report = RecoveryReport(holes=[_hole()]) if how == "found at start" else SOUND
    assert await here.leave_if_damaged(report)
    assert steps.done == ["noted", "left"] and here.unfit
    assert await here.leave_if_damaged(SOUND), "until it is moved aside"


async def test_a_member_that_cannot_note_it_leaves_all_the_same() -> None:
    steps = Steps()
    steps.failing = True
    here = site(steps, PAIR)
    here.damaged = True
    assert await here.leave_if_damaged(SOUND)
    assert steps.done == ["left"] and here.unfit


async def test_a_whole_member_stays() -> None:
    steps = Steps()
    assert not await site(steps, PAIR).leave_if_damaged(SOUND)
    assert steps.done == []


def _hole() -> Hole:
    return Hole(log="message", offset=0, size=10, reason="test")


class Held:
    """A log of a store."""

    def __init__(self, end: int) -> None:
        self.end = self.synced_offset = end


async def test_a_log_that_got_shorter_while_no_store_was_open_is_damage() -> None:
    """All files may be gone, and with them what would tell it."""
    steps = Steps()
    here = site(steps, PAIR)
    here.close_role({0: Held(100), 1: Held(10)})
    assert not await here.leave_if_damaged(SOUND, {0: Held(100), 1: Held(12)})
    assert await here.leave_if_damaged(SOUND, {0: Held(0), 1: Held(10)})
    assert steps.done == ["noted", "left"]


async def test_files_that_are_gone_make_a_member_unfit_only_while_others_have_them() -> None:
    for standing, unfit in ((PAIR, True), (OUTSIDE, True), (ALONE, False)):
        here = site(Steps(), standing)
        assert not await here.lost_files(lambda: None)
        assert await here.lost_files(lambda: DiskFailed("removed")) is unfit
        assert here.unfit is unfit


async def test_who_makes_room_is_known_to_be_damaged_and_leaves_the_other_alone_in_the_set() -> (
    None
):
    steps = Steps()
    here = site(steps, ALONE)
    await here.give_way("you")
    assert steps.done == ["noted", "set is me you", "left"]
    assert here.damaged and here.standing == OUTSIDE


async def test_a_standing_that_cannot_be_noted_is_noted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk for a moment: the role would never hear of a member that joined (seed 20276)."""
    monkeypatch.setattr(member_context, "NOTE_AGAIN_S", 0.001)
    steps, role = Steps(), Heard()
    here = site(steps, ALONE)
    here.enter(NoRole(), role)
    steps.failing = True
    here.learn(msgspec.structs.replace(ALONE, version=6))
    await asyncio.sleep(0.01)
    assert not role.told
    steps.failing = False
    await until(lambda: bool(role.told))
