"""Requests that take time: whoever asked is answered, whatever becomes of the work."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ternmq.core.errors import BadRequest, TernError, Unavailable
from ternmq.rpc.pending_requests import OpenRequest, PendingRequests
from ternmq.rpc.stuck_requests import WITHIN_S, StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Empty, Failure
from ternmq.wire.numbers import Command


class Asker(SimpleNamespace):
    """A peer that notes what it is told."""

    def __init__(self) -> None:
        super().__init__(held=0, told=[])

    def hold(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size

    def answer(self, command: int, correlation: int, *buffers: Any) -> None:
        self.told.append((correlation, buffers))

    def fail(self, command: int, correlation: int, error: TernError) -> None:
        self.told.append((correlation, error))


async def test_an_answer_that_cannot_be_sent_is_an_error_and_not_silence() -> None:
    asker, pending = Asker(), PendingRequests()

    async def work() -> Failure:
        return Failure(code="x", message="y", details={"n": 10**30})

    pending.begin(asker, Frame(Command.STATUS, 0, 7, bytearray()), work())  # type: ignore[arg-type]
    await pending.finish()

    [(correlation, error)] = asker.told
    assert (correlation, type(error), asker.held) == (7, BadRequest, 0)


def opened(asker: Asker, pending: PendingRequests) -> OpenRequest:
    """A request that its handler answers later, without a task."""
    found: list[OpenRequest] = []
    frame = Frame(Command.HALF, 0, 7, bytearray(100))

    def start(request: OpenRequest) -> None:
        request.hold(len(frame.payload))
        found.append(request)

    pending.begin_now(asker, frame, start)  # type: ignore[arg-type]
    return found[0]


async def test_a_request_without_a_task_counts_against_its_peer_until_it_is_answered() -> None:
    asker, pending = Asker(), PendingRequests()

    request = opened(asker, pending)
    assert asker.held > 100 and not asker.told
    request.answer(lambda: Empty())

    assert asker.held == 0
    assert [correlation for correlation, _ in asker.told] == [7]


async def test_what_fails_in_a_callback_is_told_to_who_asked() -> None:
    asker, pending = Asker(), PendingRequests()

    opened(asker, pending).fail(BadRequest("no"))
    opened(asker, pending).answer(lambda: Failure(code="x", message="y", details={"n": 10**30}))
    opened(asker, pending).answer(lambda: 1 / 0)  # type: ignore[arg-type, return-value]

    assert [type(error) for _, error in asker.told] == [BadRequest, BadRequest, TernError]
    assert asker.held == 0


async def test_a_request_without_a_task_is_told_what_it_is_stuck_at_and_counts_on() -> None:
    stuck = StuckRequests(lambda: "a replica is away")
    asker, pending = Asker(), PendingRequests(stuck)

    request = opened(asker, pending)
    stuck.look(asyncio.get_running_loop().time() + WITHIN_S + 1)
    assert [type(error) for _, error in asker.told] == [Unavailable]
    assert asker.held
    request.answer(lambda: Empty())

    assert len(asker.told) == 1 and not asker.held
    assert not stuck._watched


async def test_what_cannot_be_begun_is_raised_and_what_has_to_wait_becomes_a_task() -> None:
    asker, pending = Asker(), PendingRequests()
    frame = Frame(Command.HALF, 0, 7, bytearray())

    def refuse(request: OpenRequest) -> None:
        raise BadRequest("not like this")

    async def work() -> Empty:
        return Empty()

    with pytest.raises(BadRequest):
        pending.begin_now(asker, frame, refuse)  # type: ignore[arg-type]
    pending.begin_now(asker, frame, lambda request: work())  # type: ignore[arg-type]
    await pending.finish()

    assert len(asker.told) == 1 and not asker.held
