"""Requests that fail many rows: what is settled in one turn of the loop, and who comes between."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ternmq.broker.acks.large_acks import SLICE, Applied, LargeAcks, cut
from ternmq.core.errors import TernError
from ternmq.wire.messages.pull import Done

ONE: Any = "one member"
OTHER: Any = "another member"


def retries(count: int, first: int = 0) -> list[Done]:
    rows = range(first, first + count)
    return [Done(lease=1, first=row, end=row + 1, kind="retry", after_ms=row) for row in rows]


class Seen:
    """Applies nothing, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, int]] = []
        self.slices = LargeAcks(self.apply)

    def apply(self, member: Any, done: Sequence[Done]) -> Applied:
        if done[0].kind == "reject":
            raise ValueError("a bug")
        self.calls.append((member, len(done)))
        return Applied(len(done), 1, [], [])


async def test_a_slice_is_settled_in_a_turn_and_the_answer_tells_of_all() -> None:
    seen = Seen()
    turns = 0

    settling = seen.slices.add(ONE, retries(2 * SLICE + 1))
    while not settling.done():
        turns += 1
        await asyncio.sleep(0)

    assert [count for _, count in seen.calls] == [SLICE, SLICE, 1]
    assert settling.result() == Applied(2 * SLICE + 1, 3, [], [])
    assert turns >= 3


async def test_requests_are_settled_one_after_the_other() -> None:
    seen = Seen()

    await asyncio.gather(
        seen.slices.add(ONE, retries(SLICE + 1)), seen.slices.add(OTHER, retries(SLICE + 1))
    )

    assert [member for member, _ in seen.calls] == [ONE, ONE, OTHER, OTHER]


async def test_what_a_leaving_consumer_said_is_settled_at_once() -> None:
    seen = Seen()
    first, second = seen.slices.add(OTHER, retries(9)), seen.slices.add(ONE, retries(3 * SLICE))

    seen.slices.hurry(ONE)

    assert seen.calls == [(ONE, 3 * SLICE)]
    assert second.done() and not first.done()
    await seen.slices.finish()
    assert first.done()


async def test_a_bug_costs_one_request_and_not_the_next() -> None:
    seen = Seen()
    bad = [Done(lease=1, first=0, end=1, kind="reject"), *retries(SLICE)]

    failing, fine = seen.slices.add(ONE, bad), seen.slices.add(ONE, retries(1))

    with pytest.raises(TernError, match="bug"):
        await failing
    assert (await fine).settled == 1


def test_acks_are_cheap_and_go_with_the_first_slice() -> None:
    acks = [Done(lease=1, first=row, end=row + 1) for row in range(0, 1000, 2)]

    assert cut([*acks, *retries(SLICE + 1, 1000)]) == len(acks) + SLICE
    assert cut(acks) == len(acks)
