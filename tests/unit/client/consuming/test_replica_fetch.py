"""Leases of a master and bytes of a replica: how they are put together, and when not."""

from ternmq.batch.encoder import Outgoing
from ternmq.batch.envelope import Envelope, read_errors
from ternmq.batch.view import BatchView
from ternmq.client.consuming.replica_fetch import ReplicaFetch, put_together
from ternmq.wire.messages.pull import LeftOut
from tests.unit.batch.builders import a_batch


def envelope(rows: int, *, first: int = 0) -> Envelope:
    batch = BatchView(a_batch([Outgoing(body=b"%d" % row) for row in range(rows)]))
    return Envelope(0, 3, batch, [(first, rows)], [], True)


def left_out(*ranges: tuple[int, int], stored_at_ms: int = 50, attempts: object = ()) -> LeftOut:
    assert isinstance(attempts, tuple | list)
    return LeftOut(
        lease=9,
        lane=3,
        base=1_000,
        stored_at_ms=stored_at_ms,
        ranges=list(ranges),
        attempts=list(attempts),
        errors=[(1_002, 1_003, "ValueError", "no", "", 5)],
    )


def test_leases_and_bytes_are_put_together() -> None:
    asked = left_out((1, 3), (7, 9), attempts=[1, 2, 3, 4])

    whole = put_together([asked], [envelope(8)], 0)

    [one] = whole.envelopes
    assert (one.lease, one.selection, one.attempts) == (9, [(1, 3), (7, 8)], [1, 2, 3])
    assert [row[3] for row in read_errors(one.errors)] == ["no"]
    assert whole.missing == [(9, 1_008, 1_009)]


def test_bytes_of_another_history_are_not_taken() -> None:
    whole = put_together([left_out((0, 8), stored_at_ms=51)], [envelope(8)], 0)

    assert whole == ([], [(9, 1_000, 1_008)])


async def test_after_a_failure_the_master_is_asked_for_bytes_for_a_growing_while() -> None:
    left = ReplicaFetch(None, print)  # type: ignore[arg-type]
    assert left.wanted
    for _ in range(3):
        left._complain()
    assert not left.wanted
    assert left._rest_s == 8.0
