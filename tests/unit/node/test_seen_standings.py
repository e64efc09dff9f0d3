"""A meta server that saw more of a group than the registry knows: an old copy is not believed."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ternmq.core.errors import NotInSync
from ternmq.core.lifecycle import background
from ternmq.meta.directory import serving_directory
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.node.seen_standings import SeenStanding, SeenStandings
from ternmq.storage.files.disk import RealDisk
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.standings import Claim, Member, Standing
from tests.waiting import until

ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")


def written(path: Path) -> list[Standing]:
    return msgspec.msgpack.decode(path.read_bytes(), type=SeenStanding).standings


async def test_an_old_copy_is_not_believed_although_the_member_that_came_knows_no_better(
    tmp_path: Path,
) -> None:
    """The replica was out of the set when it was killed, and knows nothing of it."""
    file, seen = tmp_path / "registry.db", tmp_path / "seen"

    def claim(member: Member, held: Standing) -> Claim:
        return Claim(member=member.id, held=held, accepted_epoch=held.epoch)

    async with serving_directory(
        lambda: SqlRegistry.open_sqlite(file), clock=TurnedClock()
    ) as service:
        seen_standings = SeenStandings(service, seen, RealDisk())
        await seen_standings.check()
        async with background(seen_standings=seen_standings.run):
            await service.join_group("main", "realtime", ONE)
            await service.join_group("main", "realtime", TWO)
            led = await service.lead("main", ONE.id)
            both = await service.change_in_sync(
                "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
            )
            shutil.copy(file, tmp_path / "old.db")
            for end in ("-wal", "-shm"):
                shutil.copy(f"{file}{end}", f"{tmp_path / 'old.db'}{end}")
            alone = await service.change_in_sync(
                "main", epoch=led.epoch, in_sync=[ONE.id], version=both.version
            )
            await until(lambda: seen.exists() and written(seen) == [alone])

    async with serving_directory(
        lambda: SqlRegistry.open_sqlite(tmp_path / "old.db"), clock=TurnedClock()
    ) as service:
        assert service.standing("main") == both, "the copy is of before"
        await SeenStandings(service, seen, RealDisk()).check()
        await service.join_group("main", "realtime", TWO, claim=claim(TWO, both))
        with pytest.raises(NotInSync, match="start one"):
            await service.lead("main", TWO.id)
        after = await service.join_group("main", "realtime", ONE, claim=claim(ONE, alone))
        assert (after.in_sync, after.claims) == ([ONE.id], [])
        await SeenStandings(service, seen, RealDisk()).check()
        assert service.standing("main") == after, "once is enough"


async def test_an_old_copy_that_is_put_back_under_a_running_meta_server_makes_nobody_master(
    tmp_path: Path,
) -> None:
    """Found by the cluster simulation: who was to lead by the copy did not hear of it, since its
    version was lower than that of what the members knew."""
    file, old = tmp_path / "registry.db", tmp_path / "old.db"

    async with serving_directory(
        lambda: SqlRegistry.open_sqlite(file), clock=TurnedClock()
    ) as service:
        await service.join_group("main", "realtime", ONE)
        await service.join_group("main", "realtime", TWO)
        led = await service.lead("main", ONE.id)
        both = await service.change_in_sync(
            "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
        )
        with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(old)) as copy:
            live.backup(copy)
        await service.change_in_sync(
            "main", epoch=led.epoch, in_sync=[ONE.id], version=both.version
        )
        with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(old)) as copy:
            copy.backup(live)
        with pytest.raises(NotInSync, match="start one"):
            await service.lead("main", TWO.id, force=True)
