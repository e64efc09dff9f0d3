"""A delay server's store as a member: suffix, epochs, cuts, derived files, base (issue 7)."""

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import AlreadyExists, Diverged, ProtocolError
from ternmq.core.units import HOUR_MS, MINUTE_MS
from ternmq.delay.follower import Standby
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.formats.paths import DelayPaths, hour_name
from ternmq.delay.hours.hour import NEVER
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.delay.store.journal import Deciding
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.delay.builders import START_MS, Bench
from tests.unit.delay.replica_pair import (
    advance,
    checkpoint,
    copy,
    derive,
    follow,
    install,
    lead,
    stream,
)
from tests.waiting import until

PATHS = DelayPaths(Path("/delay"))


def open_replica(bench: Bench, disk: SimulatedDisk, *, hour_ms: int = MINUTE_MS) -> FollowingStore:
    """Its own length of an hour is another one: it must not matter."""
    return FollowingStore.open(
        disk,
        PATHS,
        clock=bench.clock,
        hour_ms=hour_ms,
        segment_size=2**22,
        min_free=0,
        suffix=True,
    )


def master() -> Bench:
    bench = Bench(suffix=True)
    lead(bench.following, 1)
    bench.begin()
    return bench


def pair() -> tuple[Bench, SimulatedDisk, FollowingStore]:
    bench, disk = master(), SimulatedDisk()
    replica = open_replica(bench, disk)
    follow(bench.store, replica)
    return bench, disk, replica


def promoted(bench: Bench, disk: SimulatedDisk, epoch: int = 2) -> Bench:
    """The replica's directory, led by itself from now on."""
    other = Bench(suffix=True, disk=disk)
    lead(other.following, epoch)
    other.clock.turn((bench.clock.now_ms() - other.clock.now_ms()) / 1000)
    other._sent = bench._sent
    other.begin()
    return other


def cancel(bench: Bench, hour: int, row: int) -> None:
    book = bench.engine.hours[hour].book
    assert book is not None
    rows = book.hold(np.array([row], np.uint32), NEVER)
    bench.decide(hour, Decision(kind=DecisionKind.CANCELLED, at_ms=0, topic_id=1, rows=rows))


def content(disk: SimulatedDisk, kind: str) -> bytes:
    return disk.read(Path("/delay") / kind / hour_name(START_MS))


def test_a_replica_has_the_same_hours_and_decisions_and_goes_on_where_the_master_was() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100, START_MS + 200, START_MS + 90_000, START_MS + 95_000])
    bench.send([START_MS + HOUR_MS + 50])
    bench.prepare()
    bench.tick(0.5)
    assert bench.send_out() == [START_MS + 100, START_MS + 200]
    cancel(bench, START_MS, 2)
    copy(bench.store, replica)

    bench.leading.settle()
    assert content(disk, "dispatch") == content(bench.disk, "dispatch")
    assert replica.hours.keys() == bench.engine.hours.keys()
    assert replica.store.derivation.schedule_log.hour_ms == HOUR_MS
    other = promoted(bench, disk)
    assert other.ledger() == bench.ledger() == (5, 2, 2, 1)
    other.clock.turn(2 * 3600)
    other.prepare()
    other.tick()
    assert other.send_out() == [START_MS + 95_000, START_MS + HOUR_MS + 50]
    assert other.ledger() == (5, 0, 4, 1)


def test_an_intent_without_an_end_is_repeated_by_who_leads_next_and_only_by_its_numbers() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    work = bench.next()
    assert work is not None
    intent = bench.intend(work, bench.collect(work).rows)
    copy(bench.store, replica)

    other = promoted(bench, disk)
    other.prepare()
    ((hour, again),) = other.engine.near.unresolved
    assert (hour, again.offset, again.group) == (START_MS, intent.offset, "main")
    assert (again.producer, again.first_sequence) == (intent.producer, intent.first_sequence)
    assert again.rows.tolist() == intent.rows.tolist()
    other.tick(1)
    assert other.send_out() == []


def test_nothing_is_made_of_what_is_not_safe_and_it_can_be_cut_off() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100, START_MS + 60_000])
    bench.prepare()
    copy(bench.store, replica)
    before = replica.store.messages.end, replica.store.decisions.end
    bench.tick(0.5)
    bench.send([START_MS + 300])
    assert bench.send_out() == [START_MS + 100]
    stream(bench.store, replica)
    derive(replica)
    checkpoint(replica)

    assert (replica.store.derivation.scheduled_to, replica.store.derivation.derived_to) == before
    replica = open_replica(bench, disk)
    assert (replica.store.messages.safe_offset, replica.store.decisions.safe_offset) == before
    assert replica.store.messages.end > before[0]
    replica.store.truncate(*before)
    replica = open_replica(bench, disk)
    assert (replica.store.messages.end, replica.store.decisions.end) == before
    other = promoted(bench, disk)
    other.prepare()
    other.tick()
    assert other.send_out() == [START_MS + 100]
    assert other.ledger() == (2, 1, 1, 0)


def test_what_is_safe_is_never_cut_off() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    copy(bench.store, replica)
    with pytest.raises(Diverged, match="acknowledged here"):
        replica.store.truncate(0, replica.store.decisions.end)
    checkpoint(replica)
    replica = open_replica(bench, disk)
    with pytest.raises(Diverged):
        replica.store.truncate(replica.store.messages.end, 0)
    assert replica.store.messages.end == bench.store.messages.end


def test_what_lies_in_the_files_of_hours_is_safe_also_when_the_checkpoint_is_older() -> None:
    bench, disk, replica = pair()
    checkpoint(replica)
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.store.decisions.sync()
    copy(bench.store, replica)
    safe = replica.store.messages.safe_offset, replica.store.decisions.safe_offset
    disk.restart()

    replica = open_replica(bench, disk)
    assert (replica.store.messages.safe_offset, replica.store.decisions.safe_offset) == safe


def test_a_decision_waits_for_the_messages_it_is_about() -> None:
    bench, _, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.store.decisions.sync()
    data = bench.store.decisions.read_raw(replica.store.decisions.end, 1 << 20)
    replica.store.decisions.receive(replica.store.decisions.end, data)
    received = replica.store.decisions.take()
    assert received is not None
    replica.store.decisions.write_received(received, sync=True)
    replica.store.decisions.advance(replica.store.decisions.end)
    derive(replica)
    assert not replica.store.dispatch_files.ends
    assert replica.store.derivation.derived_to < replica.store.decisions.safe_offset
    copy(bench.store, replica)
    assert replica.store.dispatch_files.ends == {START_MS: 184}
    assert replica.store.derivation.derived_to == replica.store.decisions.safe_offset


def test_a_member_that_leads_without_the_messages_forgets_what_was_decided_about_them() -> None:
    """`--accept-loss`: its journal goes further than its message log."""
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    ours = replica.store.decisions
    ours.receive(ours.end, bench.store.decisions.read_raw(ours.end, 1 << 20))
    received = ours.take()
    assert received is not None
    ours.write_received(received, sync=True)

    other = promoted(bench, disk)
    other.send([START_MS + 777])
    other.prepare()
    other.tick(1)
    assert other.send_out() == [START_MS + 777]
    assert other.ledger() == (1, 0, 1, 0)


def test_an_hour_that_is_over_goes_on_all_members_and_never_gets_a_row_again() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.clock.turn(2 * 3600)
    for _ in range(3):
        bench.checkpoint()
    assert not bench.engine.hours
    copy(bench.store, replica)
    assert not replica.hours
    checkpoint(replica)
    checkpoint(replica)
    assert not replica.store.schedule_files.found()
    assert not replica.store.dispatch_files.found()

    other = Bench(suffix=True, disk=disk)
    lead(other.following, 2)
    other.begin()
    assert other.clock.now_ms() < START_MS + HOUR_MS, "its clock is behind"
    other._sent = bench._sent
    other.send([START_MS + 200])
    other.prepare()
    assert list(other.engine.hours) == [START_MS + 2 * HOUR_MS]
    assert other.ledger() == (2, 1, 1, 0)


def test_the_length_of_an_hour_is_that_of_who_leads_from_where_on_it_leads() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 90_000])
    copy(bench.store, replica)
    other = Bench(suffix=True, disk=disk, hour_ms=MINUTE_MS)
    lead(other.following, 2)
    other.begin()
    other._sent = 1
    other.send([START_MS + 90_000])
    other.prepare()
    assert sorted(other.engine.hours) == [START_MS, START_MS + MINUTE_MS]

    begun = bench.store.decisions.end
    bench.kill()
    old = bench.following
    follow(other.store, old)
    stream(other.store, old)
    advance(old, other.store.messages.safe_offset, begun)
    derive(old)
    assert list(old.hours) == [START_MS], "the length of what follows is not known yet"
    copy(other.store, old)
    assert sorted(old.hours) == [START_MS, START_MS + MINUTE_MS]


def test_a_directory_of_before_there_was_a_journal_opens_and_goes_on() -> None:
    bench = Bench()
    bench.send([START_MS + 100, START_MS + 200, START_MS + 5_000])
    bench.prepare()
    bench.tick(0.15)
    assert bench.send_out() == [START_MS + 100]
    bench.store.decisions.sync()
    bench.checkpoint()
    for path in ("checkpoint", "checkpoint.copy"):
        _without_journal(bench, Path("/delay") / path)
    bench.disk.remove(Path("/delay/decisions") / f"{0:020d}.log")
    bench.kill()

    assert bench.store.decisions.start_offset > 0, "a replica needs the files of hours"
    assert bench.ledger() == (3, 2, 1, 0)
    bench.prepare()
    bench.tick(10)
    assert bench.send_out() == [START_MS + 200, START_MS + 5_000]
    bench.kill()
    assert bench.ledger() == (3, 0, 3, 0)


def _without_journal(bench: Bench, path: Path) -> None:
    known = checkpoint_file.decode(bench.disk.read(path))
    old = msgspec.structs.replace(known, decided_to=0, decision_safe=0)
    bench.disk.write_atomic(path, checkpoint_file.encode(old))


def test_an_abandoned_decision_leaves_no_gap() -> None:
    bench = Bench()
    bench.send([START_MS + 100, START_MS + 200])
    bench.prepare()
    rows = np.array([0], np.uint32)
    item = Deciding(START_MS, Decision(kind=DecisionKind.CANCELLED, at_ms=0, topic_id=1, rows=rows))
    bench.disk.faults.fail_write(1, "full")
    bench.store.decide([item])
    assert item.error is not None
    item.error = None
    bench.store.decide([item])
    assert item.error is None
    bench.kill()
    assert bench.ledger() == (2, 1, 0, 1)
    assert not bench.store.derivation.undecided


def trimmed() -> Bench:
    """A master with some history of which its logs know nothing any more."""
    bench = master()
    bench.send([START_MS + 100, START_MS + 60_000, START_MS + 61_000])
    bench.send([START_MS + HOUR_MS])
    bench.prepare()
    bench.tick(0.5)
    assert bench.send_out() == [START_MS + 100]
    cancel(bench, START_MS, 2)
    bench.checkpoint()
    bench.send([START_MS + 2 * HOUR_MS], topic="u")
    return bench


def test_a_base_brings_what_the_logs_do_not_have_any_more() -> None:
    bench, disk = trimmed(), SimulatedDisk()
    install(bench.store, disk, PATHS)
    replica = open_replica(bench, disk)

    assert replica.store.report.sound
    assert replica.store.messages.start_offset == bench.store.known.scheduled > 0
    assert replica.store.decisions.start_offset == bench.store.known.decided_to > 0
    follow(bench.store, replica)
    copy(bench.store, replica)
    other = promoted(bench, disk)
    assert other.ledger() == bench.ledger() == (5, 3, 1, 1)
    for first, count in ((0, 3), (3, 1), (4, 1)):
        assert other.store.wal.producers.find((START_MS, 1), first, count)
    other.clock.turn(3 * 3600)
    other.prepare()
    other.tick()
    assert sorted(other.send_out()) == [
        START_MS + 60_000,
        START_MS + HOUR_MS,
        START_MS + 2 * HOUR_MS,
    ]
    assert other.ledger() == (5, 0, 4, 1)


def test_what_is_copied_is_neither_removed_nor_trimmed() -> None:
    bench = trimmed()
    base = BootstrapFiles(bench.store)
    bench.clock.turn(3 * 3600)
    bench.prepare()
    bench.tick()
    bench.send_out()
    bench.clock.turn(3 * 3600)
    for _ in range(3):
        bench.checkpoint()
    assert not bench.engine.hours
    assert {START_MS, START_MS + HOUR_MS} <= {*bench.store.schedule_files.found()}
    for kind, hour, length in base.files:
        assert len(base.read(kind, hour, 0, 1 << 20)) == length
    base.close()
    base.close()
    with pytest.raises(ProtocolError, match="not being copied"):
        base.read("schedule", START_MS, 0, 10)
    bench.checkpoint()
    assert not bench.store.schedule_files.found()


@pytest.mark.parametrize("steps", range(1, 60, 3))
def test_a_power_cut_while_a_base_is_installed_leaves_all_of_it_or_nothing(steps: int) -> None:
    bench, disk = trimmed(), SimulatedDisk()
    disk.faults.cut_power(steps)
    try:
        install(bench.store, disk, PATHS, piece=100)
    except PowerCut:
        disk.crash(steps)
    disk.faults.clear()
    replica = open_replica(bench, disk)
    assert replica.store.report.sound
    if not replica.hours:
        assert replica.store.messages.start_offset == replica.store.messages.end == 0
        install(bench.store, disk, PATHS)
        replica = open_replica(bench, disk)
    follow(bench.store, replica)
    copy(bench.store, replica)
    assert promoted(bench, disk).ledger() == bench.ledger()
    assert not [name for name in disk.names(PATHS.base / "schedule") if name.endswith(".log")]


def test_a_base_is_for_an_empty_directory_and_its_bytes_follow_on() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    copy(bench.store, replica)
    bench.checkpoint()
    base = BootstrapFiles(bench.store)
    with pytest.raises(AlreadyExists, match="aside"):
        BootstrapInstall(disk, PATHS, base.manifest)
    installing = BootstrapInstall(SimulatedDisk(), PATHS, base.manifest)
    with pytest.raises(ProtocolError, match="goes on at 0"):
        installing.write("schedule", START_MS, 8, b"")
    with pytest.raises(ProtocolError, match="not whole"):
        installing.finish()


async def test_a_standby_makes_files_of_what_is_safe_and_leaves_a_checkpoint() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100, START_MS + 60_000])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.store.decisions.sync()
    standby = Standby(replica, clock=SystemClock(), checkpoint_interval_s=1000)
    running = asyncio.create_task(standby.run())
    stream(bench.store, replica)
    advance(replica, replica.store.messages.end, replica.store.decisions.end)
    standby.wake()
    await until(lambda: replica.store.derivation.derived_to >= replica.store.decisions.end)
    running.cancel()
    await asyncio.wait([running])
    await standby.close()

    known = checkpoint_file.decode(disk.read(PATHS.checkpoint))
    assert (known.clean, known.scheduled) == (True, replica.store.messages.end)
    assert known.decided_to == known.decision_safe == replica.store.decisions.end
    assert promoted(bench, disk).ledger() == (2, 1, 1, 0)


async def test_a_standby_whose_journal_is_damaged_gives_up() -> None:
    bench, disk, replica = pair()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.store.decisions.sync()
    stream(bench.store, replica)
    disk.flip(Path("/delay/decisions") / f"{0:020d}.log", 200)
    advance(replica, replica.store.messages.end, replica.store.decisions.end)
    standby = Standby(replica, clock=SystemClock(), checkpoint_interval_s=1000)
    running = asyncio.create_task(standby.run())
    failed = await until(lambda: replica.store.failed)
    running.cancel()
    await asyncio.wait([running])
    await standby.close()
    assert failed is not None and "checksum" in failed.message


def test_a_longer_hour_does_not_begin_where_a_shorter_one_is_gone() -> None:
    """Its files may still be there on one member, and be removed on another."""
    bench = Bench(suffix=True, hour_ms=MINUTE_MS)
    lead(bench.following, 1)
    bench.begin()
    disk = SimulatedDisk()
    replica = open_replica(bench, disk)
    follow(bench.store, replica)
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.5)
    bench.send_out()
    bench.clock.turn(120)
    for _ in range(3):
        bench.checkpoint()
    copy(bench.store, replica)
    assert replica.hours.dropping == {START_MS}

    other = Bench(suffix=True, disk=disk)
    lead(other.following, 2)
    other.begin()
    other._sent = bench._sent
    other.send([START_MS + 1_000])
    other.prepare()
    (hour,) = other.engine.hours.values()
    assert START_MS < hour.start <= START_MS + 120_500
    assert hour.rows == 1
    other.tick(1)
    assert other.send_out() == [START_MS + 1_000]
    bench.kill()
    follow(other.store, bench.following)
    copy(other.store, bench.following)
    assert list(bench.following.hours) == [hour.start]
