"""How a command gets its client, and how it ends."""

import asyncio
import os
import signal

import pytest
import typer

from ternmq.cli.terminal import logs
from ternmq.cli.terminal.options import EXIT_TERMINATED, use
from ternmq.client import client as client_module


class Standing:
    """A client that needs no node, and knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def __aenter__(self) -> "Standing":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.closed = True


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Standing:
    made = Standing()
    monkeypatch.setattr(client_module, "connect", lambda *_, **__: made)
    monkeypatch.setattr(logs, "configure", lambda **_: None)  # It is for the whole process.
    return made


def test_sigterm_lets_the_job_leave_and_ends_with_143(standing: Standing) -> None:
    left = False

    async def job(mq: object) -> None:
        nonlocal left
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # Leaving takes a turn of the loop, or more.
            left = True

    with pytest.raises(typer.Exit) as ended:
        use("tern://127.0.0.1:1", job, leaves=True)

    assert ended.value.exit_code == EXIT_TERMINATED == 143
    assert left
    assert standing.closed
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("standing")
def test_a_job_that_cancels_itself_is_not_taken_for_sigterm() -> None:
    async def job(mq: object) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        use("tern://127.0.0.1:1", job, leaves=True)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
