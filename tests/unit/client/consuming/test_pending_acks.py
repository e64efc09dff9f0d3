"""Settled rows as ranges."""

import random

from ternmq.client.consuming.pending_acks import (
    TAKEN_MAX,
    TAKEN_OTHERS_MAX,
    TAKEN_REASONS_MAX,
    PendingAcks,
)
from ternmq.client.model.delivery import ACK, reject_outcome, retry_outcome


def ranges(pending: PendingAcks) -> list[tuple[int, int, int]]:
    return [(done.lease, done.first, done.end) for done in pending.take()]


def test_acks_in_order_are_one_entry() -> None:
    pending = PendingAcks()
    for sequence in range(1000):
        pending.ack(7, sequence, sequence + 1)

    assert len(pending) == 1
    assert ranges(pending) == [(7, 0, 1000)]
    assert not pending


def test_rows_of_different_leases_stay_apart() -> None:
    pending = PendingAcks()
    pending.ack(1, 0, 5)
    pending.ack(2, 5, 9)

    assert ranges(pending) == [(1, 0, 5), (2, 5, 9)]


def test_any_order_of_acks_gives_the_same_ranges() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        rows = sorted(chance.sample(range(200), 120))
        shuffled = list(rows)
        chance.shuffle(shuffled)
        pending = PendingAcks()
        for row in shuffled:
            pending.ack(1, row, row + 1)
        found = [row for _, first, end in ranges(pending) for row in range(first, end)]

        assert found == rows, f"seed {seed}"


def test_verdicts_keep_their_words() -> None:
    pending = PendingAcks()
    pending.add(1, 0, 1, retry_outcome(2.5, "busy"))
    pending.add(1, 1, 2, reject_outcome("r" * 5000))
    pending.add(1, 2, 3, ACK)
    found = {done.kind: done for done in pending.take()}

    assert (found["retry"].after_ms, found["retry"].reason) == (2500, "busy")
    assert len(found["reject"].reason) == 1024
    assert found["ack"].first == 2


def test_what_is_put_back_is_taken_again() -> None:
    pending = PendingAcks()
    pending.ack(1, 0, 4)
    taken = pending.take()
    pending.put_back(taken)

    assert bool(pending)
    assert pending.take() == taken


def test_one_request_takes_a_bounded_number() -> None:
    pending = PendingAcks()
    for row in range(TAKEN_MAX + 5):
        pending.ack(1, 2 * row, 2 * row + 1)

    assert len(pending.take()) == TAKEN_MAX
    assert len(pending.take()) == 5
    assert not pending


def test_one_request_takes_fewer_of_what_is_not_an_ack() -> None:
    pending = PendingAcks()
    for row in range(TAKEN_OTHERS_MAX + 5):
        pending.add(1, row, row + 1, retry_outcome(1 + row % 7, ""))

    first = pending.take()
    assert len(first) == TAKEN_OTHERS_MAX
    pending.put_back(first)
    assert pending.take() == first
    assert len(pending.take()) == 5
    assert not pending


def test_one_request_takes_only_so_much_text_of_reasons() -> None:
    pending = PendingAcks()
    for at in range(2000):
        pending.add(1, at, at + 1, reject_outcome(f"{at} " + "x" * 1020))
    pending.ack(1, 5000, 5003)

    assert pending.rows == 2003
    taken = pending.take()
    assert sum(len(each.reason) for each in taken) <= TAKEN_REASONS_MAX
    assert 0 < pending.rows < 2000
    pending.put_back(taken)
    assert pending.rows == 2003


def test_a_million_that_fail_alike_one_after_the_other_are_one_entry() -> None:
    pending = PendingAcks()
    outcome = retry_outcome(None, "down")
    for row in range(1_000):
        pending.add(1, row, row + 1, outcome)
    pending.add(1, 1_000, 1_001, retry_outcome(None, "other"))
    pending.add(2, 1_001, 1_002, retry_outcome(None, "other"))

    assert [(d.lease, d.first, d.end) for d in pending.take()] == [
        (1, 0, 1_000),
        (1, 1_000, 1_001),
        (2, 1_001, 1_002),
    ]
