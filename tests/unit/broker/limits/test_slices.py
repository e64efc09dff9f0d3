"""Long lists in slices: one a turn of the loop, however many are made."""

import asyncio
from collections.abc import Iterator

from ternmq.broker.limits.slices import Slices


async def test_everything_is_made_in_order() -> None:
    slices = Slices(size=3)

    assert await slices.make(range(10), str) == [str(number) for number in range(10)]
    assert await slices.make([], str) == []


async def test_many_lists_share_the_turns() -> None:
    """Between two turns of the loop not more than one slice of all lists is made."""
    slices, made = Slices(size=5), [0]
    turns: list[int] = []

    def make(number: int) -> int:
        made[0] += 1
        return number

    async def watch() -> None:
        while True:
            before = made[0]
            await asyncio.sleep(0)
            turns.append(made[0] - before)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(slices.make(range(100), make) for _ in range(10)))
    watching.cancel()

    assert made[0] == 1_000
    assert max(turns) == 5


async def test_a_short_list_does_not_wait_for_long_ones() -> None:
    slices = Slices(size=5)
    long = asyncio.create_task(slices.make(range(10_000), str))
    await asyncio.sleep(0)
    await slices.make(range(3), str)

    assert not long.done()
    await long


async def test_work_in_steps_shares_the_turns_with_all_other_work() -> None:
    slices, done = Slices(), [0]

    def steps() -> Iterator[None]:
        for _ in range(5):
            done[0] += 1
            yield

    working = asyncio.gather(*(slices.run(steps()) for _ in range(4)))
    most = 0
    while not working.done():
        before = done[0]
        await asyncio.sleep(0)
        most = max(most, done[0] - before)

    assert (done[0], most) == (20, 1)
