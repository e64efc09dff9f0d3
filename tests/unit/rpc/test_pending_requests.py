"""Requests that take time: whoever asked is answered, whatever becomes of the work."""

from types import SimpleNamespace
from typing import Any

from ternmq.core.errors import BadRequest, TernError
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Failure
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
