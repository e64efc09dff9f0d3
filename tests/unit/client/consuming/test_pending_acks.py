"""Settled rows as ranges."""

import random

from ternmq.client.consuming.pending_acks import (
    TAKEN_MAX,
    TAKEN_OTHERS_MAX,
    TAKEN_REASONS_MAX,
    PendingAcks,
)
from ternmq.client.model.delivery import ACK, reject_verdict, retry_verdict


def ranges(dones: PendingAcks) -> list[tuple[int, int, int]]:
    return [(done.lease, done.first, done.end) for done in dones.take()]


def test_acks_in_order_are_one_entry() -> None:
    dones = PendingAcks()
    for sequence in range(1000):
        dones.ack(7, sequence, sequence + 1)

    assert len(dones) == 1
    assert ranges(dones) == [(7, 0, 1000)]
    assert not dones


def test_rows_of_different_leases_stay_apart() -> None:
    dones = PendingAcks()
    dones.ack(1, 0, 5)
    dones.ack(2, 5, 9)

    assert ranges(dones) == [(1, 0, 5), (2, 5, 9)]


def test_any_order_of_acks_gives_the_same_ranges() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        rows = sorted(chance.sample(range(200), 120))
        shuffled = list(rows)
        chance.shuffle(shuffled)
        dones = PendingAcks()
        for row in shuffled:
            dones.ack(1, row, row + 1)
        found = [row for _, first, end in ranges(dones) for row in range(first, end)]

        assert found == rows, f"seed {seed}"


def test_verdicts_keep_their_words() -> None:
    dones = PendingAcks()
    dones.add(1, 0, 1, retry_verdict(2.5, "busy"))
    dones.add(1, 1, 2, reject_verdict("r" * 5000))
    dones.add(1, 2, 3, ACK)
    found = {done.kind: done for done in dones.take()}

    assert (found["retry"].after_ms, found["retry"].reason) == (2500, "busy")
    assert len(found["reject"].reason) == 1024
    assert found["ack"].first == 2


def test_what_is_put_back_is_taken_again() -> None:
    dones = PendingAcks()
    dones.ack(1, 0, 4)
    taken = dones.take()
    dones.put_back(taken)

    assert bool(dones)
    assert dones.take() == taken


def test_one_request_takes_a_bounded_number() -> None:
    dones = PendingAcks()
    for row in range(TAKEN_MAX + 5):
        dones.ack(1, 2 * row, 2 * row + 1)

    assert len(dones.take()) == TAKEN_MAX
    assert len(dones.take()) == 5
    assert not dones


def test_one_request_takes_fewer_of_what_is_not_an_ack() -> None:
    dones = PendingAcks()
    for row in range(TAKEN_OTHERS_MAX + 5):
        dones.add(1, row, row + 1, retry_verdict(1 + row % 7, ""))

    first = dones.take()
    assert len(first) == TAKEN_OTHERS_MAX
    dones.put_back(first)
    assert dones.take() == first
    assert len(dones.take()) == 5
    assert not dones


def test_one_request_takes_only_so_much_text_of_reasons() -> None:
    dones = PendingAcks()
    for at in range(2000):
        dones.add(1, at, at + 1, reject_verdict(f"{at} " + "x" * 1020))
    dones.ack(1, 5000, 5003)

    assert dones.rows == 2003
    taken = dones.take()
    assert sum(len(each.reason) for each in taken) <= TAKEN_REASONS_MAX
    assert 0 < dones.rows < 2000
    dones.put_back(taken)
    assert dones.rows == 2003


def test_a_million_that_fail_alike_one_after_the_other_are_one_entry() -> None:
    dones = PendingAcks()
    verdict = retry_verdict(None, "down")
    for row in range(1_000):
        dones.add(1, row, row + 1, verdict)
    dones.add(1, 1_000, 1_001, retry_verdict(None, "other"))
    dones.add(2, 1_001, 1_002, retry_verdict(None, "other"))

    assert [(d.lease, d.first, d.end) for d in dones.take()] == [
        (1, 0, 1_000),
        (1, 1_000, 1_001),
        (2, 1_001, 1_002),
    ]
