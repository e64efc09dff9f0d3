"""Known bugs, put in on purpose: the cluster simulation has to find each within a few seeds.

A simulation that never fails proves nothing. Each of these is a rule of replication left out, run
with faults that are aimed at it (`ambush`, `exile`); they are part of every other run too.
"""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from ternmq.backup import inventory
from ternmq.broker.delivery import lookup, pull
from ternmq.broker.maintenance.copy_forward import CopyForward
from ternmq.client.model.delivery import Delivery
from ternmq.core.errors import TernError
from ternmq.meta.standings import leadership, standings
from ternmq.node.seen_standings import SeenStandings
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.replication.leading.in_sync_set import InSync
from ternmq.replication.leading.leader import Leader
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.roles import leader_role
from ternmq.replication.roles.follower_role import FollowerRole
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.log.replicated_log import ReplicatedLog
from ternmq.storage.store import Store
from ternmq.wire.messages.replication import LogHeld, LogPlan
from ternmq.wire.messages.standings import Standing
from tests.simulation.cluster import backup as cluster_backup
from tests.simulation.cluster.cluster import simulate

Patch = pytest.MonkeyPatch


def acks_without_replicas(patch: Patch) -> None:
    """A byte counts when it is on the disk of the master."""
    patch.setattr(InSync, "mark", lambda in_sync, log, written: written)


def counts_a_change_as_made_when_it_is_sent(patch: Patch) -> None:
    """Who is to leave the set is not required any more, before the registry agrees."""

    require = InSync._require

    def too_few(in_sync: InSync) -> None:
        require(in_sync)
        if in_sync.proposal is not None:
            in_sync.required = in_sync.proposal.in_sync - {in_sync._me}

    patch.setattr(InSync, "_require", too_few)


def lets_anybody_lead(patch: Patch) -> None:
    """Whoever asks first while the master is silent becomes master, in sync or not."""
    checked = standings.check_lead

    def check(*args: Any, **options: Any) -> None:
        checked(*args, **options | {"accept_loss": True})

    async def ask(replica: FollowerRole) -> Standing | None:
        site = replica._context
        try:
            return await site.directory.lead(site.broker_group, site.me)
        except TernError:
            return None

    patch.setattr(leadership, "check_lead", check)
    patch.setattr(FollowerRole, "_try_to_lead", ask)


def cuts_nothing_off(patch: Patch) -> None:
    """A member that returns keeps what the master lacks."""
    planned = Leader._plan

    def plan(leader: Leader, held: LogHeld) -> LogPlan:
        made = planned(leader, held)
        return LogPlan(log=made.log, cut_to=held.end, start=made.start, epochs=made.epochs)

    patch.setattr(Leader, "_plan", plan)


def shows_what_is_not_safe(patch: Patch) -> None:
    """A replica lets everything count that it has written."""
    advanced = ReplicaWriter._advance

    def advance(intake: ReplicaWriter) -> None:
        intake._safe = {number: target.end for number, target in intake._logs.items()}
        advanced(intake)

    patch.setattr(ReplicaWriter, "_advance", advance)


def answers_before_it_is_on_disk(patch: Patch) -> None:
    """A replica says to have what it has only received."""
    taken = ReplicaWriter.take

    def take(intake: ReplicaWriter, payload: bytearray, expected: int) -> None:
        taken(intake, payload, expected)
        for number, end in intake.master_ends.items():
            intake._answer(number, end)

    patch.setattr(ReplicaWriter, "take", take)


def answers_for_what_a_failed_sync_left_out(patch: Patch) -> None:
    """A replica that comes again says to have all that it can read."""

    async def settle(intake: ReplicaWriter) -> None:
        while True:
            await intake.alone(lambda: None)
            if not intake.busy:
                return

    patch.setattr(ReplicaWriter, "settle", settle)


def forget_marks(patch: Patch) -> None:
    """A start does not look at the marks of logs."""
    opened = LogMark.__init__

    def opens(mark: LogMark, disk: Disk, path: Path) -> None:
        opened(mark, disk, path)
        mark.synced = mark.safe = 0

    patch.setattr(LogMark, "__init__", opens)


def takes_a_short_log_for_a_torn_one(patch: Patch) -> None:
    """What a member had on disk is known by its checkpoint only, and nobody compares (V1)."""
    forget_marks(patch)
    patch.setattr(ReplicatedLog, "acknowledged", ReplicatedLog.safe_offset)
    patch.setattr(Leader, "_compare", lambda leader, request, plans: None)


def leads_without_its_files(patch: Patch) -> None:
    """A replica does not look whether its files are there before it asks to lead (V2, L1)."""

    async def nothing_lost(site: MemberContext, look: Any) -> bool:
        return False

    patch.setattr(MemberContext, "lost_files", nothing_lost)
    patch.setattr(MemberContext, "close_role", lambda site, logs: None)
    forget_marks(patch)


def takes_others_out_without_its_files(patch: Patch) -> None:
    """A master whose log was removed says that its replicas are late (seeds 31492 and 31510)."""

    async def looks_away(context: MemberContext, store: Any) -> None:
        pass

    patch.setattr(leader_role, "_check_files", looks_away)


def believes_an_old_copy(patch: Patch) -> None:
    """A meta server decides by the older copy of the registry that was put back."""

    async def nothing_seen(seen: SeenStandings) -> None:
        pass

    patch.setattr(leadership.Leadership, "saw", lambda leadership, standing: None)
    patch.setattr(SeenStandings, "check", nothing_seen)


def takes_an_error_of_the_disk_for_damage(patch: Patch) -> None:
    """What cannot be read for a moment counts as expired."""
    never_raised = type("NeverRaised", (TernError,), {})
    patch.setattr(pull, "DiskFailed", never_raised)
    patch.setattr(lookup, "DiskFailed", never_raised)


def drops_what_consumers_hold(patch: Patch) -> None:
    """Messages go by age though they were handed out, and nobody copies them."""

    async def nothing_copied(forward: CopyForward, group: Any, pieces: Any) -> int:
        for first, end, _ in pieces:
            await forward._decide(group, group.lane.moved(first, end, expired=True))
        return 0

    patch.setattr(CopyForward, "_copy", nothing_copied)


def removes_one_file_too_many(patch: Patch) -> None:
    """Which rows are gone is taken from the oldest segment, and the next one goes, too."""
    drop = Store.drop_oldest

    def drop_two(store: Store, base: int) -> None:
        drop(store, base)
        sealed = store.consume.sealed()
        if sealed:
            drop(store, sealed[0].base)

    patch.setattr(Store, "drop_oldest", drop_two)


def begins_what_is_over(patch: Patch) -> None:
    """A consumer that slept shows what lay in its buffers (chaos V3)."""
    patch.setattr(Delivery, "until", property(lambda delivery: inf, lambda delivery, until: None))


def backs_up_logs_before_what_speaks_of_them(patch: Patch) -> None:
    """The order of the inventory the other way round, and nobody compares marks and ends."""
    patch.setattr(cluster_backup, "measured_after", lambda path: -inventory.measured_after(path))
    patch.setattr(cluster_backup, "is_cut", lambda files: False)


AIMED: dict[str, Any] = {
    "members": (3,),
    "hurry": 2,
    "faults": 4,
    "lasts": 8.0,
    "sends": 25,
    "metas": 1,
}
ALONE = {"only": ("exile",), "members": (2,), "replica_lost": "continue"}
DOWN: dict[str, Any] = {"only": ("cut log", "remove log"), "members": (2,)}
RUNNING: dict[str, Any] = {"only": ("unlink log", "unlink folder"), "members": (2,)}
LAST: dict[str, Any] = {"only": ("unlink last",), "members": (2,), "replica_lost": "continue"}
STALE: dict[str, Any] = {"only": ("stale registry",), "members": (2,), "replica_lost": "continue"}
OLD: dict[str, Any] = {"only": ("old registry", "kill server"), "members": (2,)}
EMPTY: dict[str, Any] = {
    "only": ("empty registry", "kill server"),
    "members": (2, 2),
    "transactions": False,
    "delays": 0,
}
READS: dict[str, Any] = {"only": ("cold reads",), "members": (1,), "faults": 2}
OLDER: dict[str, Any] = {
    "expires": "age",
    "members": (2,),
    "segment_batches": 5,
    "delays": 0,
    "lasts": 20.0,
    "faults": 0,
    "operated": False,
}
COPIED: dict[str, Any] = {
    "backup": True,
    "expires": "",
    "members": (2,),
    "delays": 1,
    "lasts": 3.0,
    "sends": 100,
    "faults": 0,
}
ASLEEP: dict[str, Any] = {
    "only": ("suspend",),
    "members": (1,),
    "lasts": 45.0,
    "sends": 150,
    "operated": False,
    "transactions": False,
    "delays": 0,
    "expires": "",
    "backup": False,
}
FAILING: dict[str, Any] = {"only": ("failing blackout",), "members": (2,), "hurry": 10, "faults": 2}
SEEDS = 20
"""Half of the runs find it, or more."""


def check_found(shape: dict[str, Any]) -> None:
    assert any(is_found(seed, AIMED | shape) for seed in range(SEEDS))


@pytest.mark.parametrize(
    ("mutant", "shape"),
    [
        (acks_without_replicas, {"only": ("ambush",)}),
        (counts_a_change_as_made_when_it_is_sent, ALONE),
        (lets_anybody_lead, {"only": ("straggler",)}),
        (answers_for_what_a_failed_sync_left_out, FAILING),
        (takes_a_short_log_for_a_torn_one, DOWN),
        (leads_without_its_files, RUNNING),
        (takes_others_out_without_its_files, LAST),
        (believes_an_old_copy, STALE),
        (takes_an_error_of_the_disk_for_damage, READS),
        (drops_what_consumers_hold, OLDER),
        (removes_one_file_too_many, OLDER),
        (begins_what_is_over, ASLEEP),
    ],
)
def test_a_known_bug_is_found(
    mutant: Callable[[Patch], None], shape: dict[str, Any], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)

    check_found(shape)


@pytest.mark.parametrize(
    "shape", [FAILING, DOWN, RUNNING, LAST, STALE, OLD, EMPTY, READS, OLDER, COPIED, ASLEEP]
)
def test_without_the_bug_the_same_faults_cost_nothing(shape: dict[str, Any]) -> None:
    for seed in range(2):
        simulate(seed, **AIMED | shape)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "shape"),
    [
        (cuts_nothing_off, {"only": ("ambush", "exile")}),
        (shows_what_is_not_safe, {"only": ("ambush", "exile")}),
        (answers_before_it_is_on_disk, {"only": ("blackout",)}),
        (backs_up_logs_before_what_speaks_of_them, COPIED),
    ],
)
def test_another_known_bug_is_found(
    mutant: Callable[[Patch], None], shape: dict[str, Any], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)

    check_found(shape)


def is_found(seed: int, shape: dict[str, Any]) -> bool:
    try:
        simulate(seed, **shape)
    except AssertionError:
        return True
    return False
