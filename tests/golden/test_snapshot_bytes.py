"""The bytes of a lane's snapshot, and of the records about detached leases (0041)."""

from pathlib import Path

import msgspec
import pytest

from ternmq.broker.groups import snapshot
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.lease import DETACHED, Lease, lock_of
from ternmq.broker.groups.outcomes import Outcomes
from ternmq.storage.pull import record as pull_record
from ternmq.storage.pull.record import PullRecord
from ternmq.wire.messages.groups import GroupSettings

GOLDEN = Path(__file__).parent
NOW, KEY = 5_000, 0x1122334455667788
SESSION = bytes(range(16))


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text())


def steps() -> tuple[Lane, LaneEvent, LaneEvent]:
    """Ten rows with a detached lease, of which three are kept longer."""
    lane = Lane(0)
    lane.grow(100)
    lease = Lease(7 << 24 | 5, SESSION, DETACHED, NOW + 30_000, since=NOW, lock=lock_of(KEY))
    handed = lane.hand_out(lease, [], 10)
    extended = lane.extend(lease.id, 2, 5, now=NOW, kept_ms=60_000).changes[0]
    return lane, handed, extended


def record(change: LaneEvent) -> bytes:
    made = PullRecord(
        kind=change.kind,
        group_id=5,
        lane_id=3,
        at_ms=1_700_000_000_123,
        session=change.session,
        lease=change.lease,
        argument=change.argument,
        ranges=change.ranges,
        text=change.text,
    )
    return bytes(pull_record.encode(made, offset=0x1000, durable_to=0x800))


def lane_bytes() -> bytes:
    """Without its settings, which other files pin, and which grow."""
    saved = snapshot.save(
        steps()[0],
        group="billing",
        created_at_ms=1_700_000_000_000,
        now=NOW,
        settings=GroupSettings(),
        outcomes=Outcomes(),
    )
    fields = msgspec.msgpack.decode(saved)
    fields[list(snapshot.LaneState.__struct_fields__).index("settings")] = []
    return msgspec.msgpack.encode(fields)


FILES = {
    "pull_handed_out_detached_v1.hex": lambda: record(steps()[1]),
    "pull_extended_v1.hex": lambda: record(steps()[2]),
    "snapshot_detached_v1.hex": lane_bytes,
}


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_are_those_of_their_version(name: str) -> None:
    assert FILES[name]() == golden(name)


def test_a_snapshot_with_a_detached_lease_is_read_back() -> None:
    state, lane = snapshot.load(
        golden("snapshot_detached_v1.hex"), now=1_000, waited_ms=10_000, grace_until=1_500
    )

    [lease] = lane.leases.values()
    assert state.group == "billing"
    assert lease.owner == DETACHED and lease.opens(KEY) and not lease.opens(KEY + 1)
    assert lease.deadline == 1_000 + 20_000, "the time that passed counts"
    assert list(lease.deadlines or ()) == [(0, 2, 21_000), (2, 5, 51_000), (5, 10, 21_000)]


def test_a_snapshot_from_before_there_were_detached_leases_is_read() -> None:
    """Fields were added at the end of a lease: an older one ends before them."""
    whole = msgspec.msgpack.decode(golden("snapshot_detached_v1.hex"))
    at = list(snapshot.LaneState.__struct_fields__).index("leases")
    whole[at] = [lease[:3] for lease in whole[at]]

    _, lane = snapshot.load(
        msgspec.msgpack.encode(whole), now=1_000, waited_ms=10_000, grace_until=1_500
    )

    [lease] = lane.leases.values()
    assert (lease.owner, lease.lock, lease.deadline) == (0, b"", 1_500)
    assert lease.rows.count == 10
