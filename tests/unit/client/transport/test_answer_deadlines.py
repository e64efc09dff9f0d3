"""One timer for the deadlines of many answers."""

import asyncio

import pytest

from ternmq.client.transport import answer_deadlines
from ternmq.client.transport.answer_deadlines import AnswerDeadlines


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_deadlines, "SWEEP_S", 0.001)


async def test_an_answer_that_is_overdue_is_given_up_and_others_are_not() -> None:
    loop, deadlines = asyncio.get_running_loop(), AnswerDeadlines()
    late, later, there = (loop.create_future() for _ in range(3))
    there.set_result("answer")
    deadlines.watch(there, loop.time() - 1)
    deadlines.watch(late, loop.time() - 1)
    deadlines.watch(later, loop.time() + 60)

    with pytest.raises(TimeoutError):
        await late

    assert there.result() == "answer" and not later.done()
    deadlines.stop()


async def test_it_looks_only_while_something_is_waited_for() -> None:
    loop, deadlines = asyncio.get_running_loop(), AnswerDeadlines()
    for _ in range(2):
        answer = loop.create_future()
        deadlines.watch(answer, loop.time() - 1)
        with pytest.raises(TimeoutError):
            await answer
        assert deadlines._timer is None and not deadlines._watched


async def test_who_stopped_waiting_is_not_told() -> None:
    loop, deadlines = asyncio.get_running_loop(), AnswerDeadlines()
    left, late = loop.create_future(), loop.create_future()
    deadlines.watch(left, loop.time() - 1)
    deadlines.watch(late, loop.time() - 1)
    left.cancel()

    with pytest.raises(TimeoutError):
        await late

    assert left.cancelled()
