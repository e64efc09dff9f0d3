"""Leading a broker group through the directory: one registry, several meta servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from ternmq.core.errors import AlreadyExists, BadName, BadRequest, Conflict, MasterAlive, NotInSync
from ternmq.discovery.directory import InUse
from ternmq.meta.config import DEAD_AFTER_MS
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.standings import Claim, Member, Standing, standing_of
from tests.unit.meta.conftest import Opener

DEAD_AFTER_S = DEAD_AFTER_MS // 1000
ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")


@asynccontextmanager
async def meta(opener: Opener, clock: TurnedClock | None = None) -> AsyncIterator[MetaDirectory]:
    async with serving_directory(opener, clock=clock or TurnedClock()) as service:
        yield service


async def standing_at(service: MetaDirectory, version: int) -> Standing:
    async with asyncio.timeout(10):
        while True:
            held, since = service.standing("main"), service.news.version
            if held is not None and held.version >= version:
                return held
            await service.news.wait(since, 10)


def pass_time(service: MetaDirectory, clock: TurnedClock, seconds: float) -> None:
    """As a meta server that looks around every second."""
    for _ in range(int(seconds)):
        clock.turn(1)
        service.liveness.horizon()


async def test_a_group_is_joined_led_and_widened_and_others_hear_of_it(opener: Opener) -> None:
    async with meta(opener) as here, meta(opener) as there:
        told: list[Standing] = []
        there.on_standing_changed(told.append)
        await here.join_group("main", "realtime", ONE)
        await here.join_group("main", "realtime", TWO)
        led = await here.lead("main", ONE.id)
        wide = await there.change_in_sync(
            "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
        )

        assert (led.epoch, led.master, led.in_sync, led.version) == (1, ONE.id, [ONE.id], 3)
        assert (wide.in_sync, wide.version) == ([ONE.id, TWO.id], 4)
        assert await standing_at(here, 4) == await here.read_standing("main") == wide
        assert told[-1] == there.standing("main") == wide
        assert [each.version for each in told] == sorted({each.version for each in told})
    async with meta(opener) as later:
        assert later.standings() == [wide]


async def test_every_start_of_a_master_has_an_epoch_of_its_own(opener: Opener) -> None:
    """D7; groups of earlier releases go on counting, also after the registry was lost."""
    async with meta(opener) as service:
        assert await service.new_epoch("main") == 1
        await service.reserve(
            InUse(broker_group="main", topic_ids=frozenset(), group_id=0, epoch=6)
        )
        await service.join_group("main", "realtime", ONE, data_epoch=6)
        epochs = [(await service.lead("main", ONE.id)).epoch for _ in range(3)]
        await service.join_group("main", "delay", ONE)

        assert epochs == [7, 8, 9]
        assert (await service.lead("main", ONE.id, kind="delay")).epoch == 1


async def test_an_empty_directory_does_not_take_over_a_group_with_a_history(
    opener: Opener,
) -> None:
    async with meta(opener) as service:
        await service.new_epoch("main")
        await service.join_group("main", "realtime", TWO)
        with pytest.raises(NotInSync):
            await service.lead("main", TWO.id)
        standing = await service.join_group("main", "realtime", ONE, data_epoch=1)
        assert standing.in_sync == [ONE.id], "the broker that has it came later"
        with pytest.raises(NotInSync):
            await service.lead("main", TWO.id)
        assert (await service.lead("main", TWO.id, accept_loss=True)).in_sync == [TWO.id]


async def test_a_replica_leads_only_when_the_master_was_silent_for_long_enough(
    opener: Opener,
) -> None:
    clock = TurnedClock()
    async with meta(opener, clock) as service:
        await service.join_group("main", "realtime", ONE)
        await service.join_group("main", "realtime", TWO)
        led = await service.lead("main", ONE.id)
        await service.change_in_sync(
            "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
        )
        pass_time(service, clock, DEAD_AFTER_S - 1)
        with pytest.raises(MasterAlive):
            await service.lead("main", TWO.id)  # It may be alive: we have just started.
        service.liveness.heard(ONE.id)
        pass_time(service, clock, DEAD_AFTER_S - 1)
        with pytest.raises(MasterAlive):
            await service.lead("main", TWO.id)
        pass_time(service, clock, 2)
        after = await service.lead("main", TWO.id)

        assert (after.master, after.in_sync) == (TWO.id, [ONE.id, TWO.id])
        alone = await service.change_in_sync(
            "main", epoch=after.epoch, in_sync=[TWO.id], version=after.version
        )
        with pytest.raises(NotInSync):
            await service.lead("main", ONE.id)
        with pytest.raises(Conflict) as raised:
            await service.change_in_sync(
                "main", epoch=led.epoch, in_sync=[ONE.id], version=led.version
            )
        assert standing_of(raised.value) == alone


async def test_a_master_that_said_goodbye_is_replaced_at_once(opener: Opener) -> None:
    async with meta(opener) as service:
        await service.join_group("main", "realtime", ONE)
        await service.join_group("main", "realtime", TWO)
        led = await service.lead("main", ONE.id)
        both = [ONE.id, TWO.id]
        await service.change_in_sync("main", epoch=led.epoch, in_sync=both, version=led.version)
        service.liveness.left(ONE.id)

        assert (await service.lead("main", TWO.id)).master == TWO.id


async def test_a_meta_server_that_was_stopped_itself_judges_nobody(opener: Opener) -> None:
    """SIGSTOP of a meta server: what the others said meanwhile still waits to be read."""
    clock = TurnedClock()
    async with meta(opener, clock) as service:
        pass_time(service, clock, 20)
        service.liveness.heard(ONE.id)
        clock.turn(60)
        assert service.liveness.may_be_alive(ONE.id)
        pass_time(service, clock, DEAD_AFTER_S - 1)
        assert service.liveness.may_be_alive(ONE.id)
        pass_time(service, clock, 2)
        assert not service.liveness.may_be_alive(ONE.id)


async def test_of_two_who_lead_at_once_both_get_epochs_and_the_larger_one_stands(
    opener: Opener,
) -> None:
    async with meta(opener) as here, meta(opener) as there:
        await here.join_group("main", "realtime", ONE)
        both = [service.lead("main", ONE.id) for service in (here, there) for _ in range(5)]
        epochs = [each.epoch for each in await asyncio.gather(*both)]

        assert len(set(epochs)) == 10
        standing = await here.read_standing("main")
        assert standing is not None and standing.epoch == max(epochs)


async def test_a_copied_data_directory_is_refused_while_the_first_runs(opener: Opener) -> None:
    clock = TurnedClock()
    async with meta(opener, clock) as service:
        await service.join_group("main", "realtime", ONE)
        service.liveness.heard(ONE.id)
        copy = Member(id=ONE.id, name="copy", address="h9:1")
        with pytest.raises(AlreadyExists, match=r"h1:1.*delete the file 'member'"):
            await service.join_group("main", "realtime", copy)
        pass_time(service, clock, 11)
        assert (await service.join_group("main", "realtime", copy)).members == [copy]


async def test_mistakes_are_named(opener: Opener) -> None:
    async with meta(opener) as service:
        with pytest.raises(BadName):
            await service.join_group("a b", "realtime", ONE)
        with pytest.raises(BadRequest, match="nobody joined"):
            await service.lead("main", ONE.id)
        assert await service.read_standing("main") is None


async def test_a_registry_that_knows_less_than_a_member_skips_epochs_and_waits_for_all(
    opener: Opener,
) -> None:
    stood = Standing(
        broker_group="main",
        version=9,
        epoch=6,
        master=ONE.id,
        in_sync=[ONE.id, TWO.id],
        members=[ONE, TWO],
    )

    def claim(member: Member) -> Claim:
        return Claim(member=member.id, held=stood, accepted_epoch=6)

    async with meta(opener) as service:
        waiting = await service.join_group("main", "realtime", TWO, claim=claim(TWO))
        assert waiting.in_sync == []
        with pytest.raises(NotInSync, match="start one"):
            await service.lead("main", TWO.id)
        assert await service.join_group("main", "realtime", TWO, claim=claim(TWO)) == waiting

        after = await service.join_group("main", "realtime", ONE, claim=claim(ONE))
        assert (after.version, after.epoch, after.master) == (10, 6, ONE.id)
        assert after.in_sync == [ONE.id, TWO.id]
        assert (await service.lead("main", ONE.id)).epoch > 1_000, "more may have been given out"


async def pair_of(here: MetaDirectory) -> None:
    """One leads, two is in sync."""
    await here.join_group("main", "realtime", ONE)
    await here.join_group("main", "realtime", TWO)
    led = await here.lead("main", ONE.id)
    await here.change_in_sync(
        "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
    )


async def test_a_master_that_another_meta_server_hears_is_not_replaced(opener: Opener) -> None:
    """Q10: one of them may be cut off from a healthy master, or told a goodbye of before."""
    clock = TurnedClock()
    async with meta(opener, clock) as here, meta(opener) as there:
        await pair_of(here)
        await there.hold_servers({ONE.id: 2.0})
        pass_time(here, clock, 20)
        with pytest.raises(MasterAlive):
            await here.lead("main", TWO.id)
        here.liveness.left(ONE.id)
        pass_time(here, clock, 4)
        with pytest.raises(MasterAlive):
            await here.lead("main", TWO.id)

        # The one that hears it dies: what it said grows old. So does a goodbye said to both.
        await there.hold_servers({ONE.id: 5.0})
        assert (await here.lead("main", TWO.id)).master == TWO.id


async def test_a_master_that_no_meta_server_heard_for_long_enough_is_replaced(
    opener: Opener,
) -> None:
    clock = TurnedClock()
    async with meta(opener, clock) as here, meta(opener) as there:
        await pair_of(here)
        await there.hold_servers({ONE.id: 10.5})
        pass_time(here, clock, 20)
        assert (await here.lead("main", TWO.id)).master == TWO.id


async def test_a_group_of_another_cluster_is_taken_up_by_an_empty_registry_only(
    opener: Opener,
) -> None:
    """R1: the registry of the group may be lost; one in which others began is not its own."""
    held = Standing(
        broker_group="east", version=5, epoch=3, line="other", members=[ONE], in_sync=[ONE.id]
    )
    claim = Claim(member=ONE.id, held=held, accepted_epoch=3, data_epoch=3)
    async with meta(opener) as service:
        taken = await service.join_group("east", "realtime", ONE, data_epoch=3, claim=claim)
        assert (taken.line, taken.in_sync) == ("other", [ONE.id])
        await service.join_group("west", "realtime", TWO)
        await service.lead("west", TWO.id)
        again = await service.join_group("east", "realtime", ONE, data_epoch=3, claim=claim)
        assert again.line == "other", "it was taken up before"

        north = msgspec.structs.replace(claim, held=msgspec.structs.replace(held, broker_group="n"))
        with pytest.raises(BadRequest, match=r"data of cluster other.*'west' began"):
            await service.join_group("n", "realtime", ONE, data_epoch=3, claim=north)
