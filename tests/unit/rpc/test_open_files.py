"""Out of open files: new connections are refused, the server goes on (row 20)."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from ternmq.core.errors import OverLimit
from ternmq.rpc.server import FILES_KEPT
from ternmq.wire.numbers import Command
from tests.waiting import until

from .peers import Echo, connected, hello_frame, serving


@contextmanager
def files_max(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def highest_file() -> int:
    return max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_connections_are_limited_to_what_files_allow_and_the_next_is_told() -> None:
    limit = highest_file() + 100  # Other tests of this process may have left some open.
    with files_max(limit), capture_logs() as logs:
        async with serving(Echo(), connections_max=10_000) as listener:
            warning = next(entry for entry in logs if "fewer connections" in entry["event"])
            possible = max(limit - FILES_KEPT, limit // 2)
            assert (warning["possible"], warning["wanted"]) == (possible, 10_000)
            listener._pool.connections_max = 1  # This process holds both ends of each.
            first = await connected(listener)
            with pytest.raises(OverLimit, match="open-file limit"):
                await connected(listener)
            await first.close()


async def test_running_out_of_files_while_accepting_does_not_stop_the_server() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with serving(Echo()) as listener:
        inside = await connected(listener)
        sockets = [socket.socket() for _ in range(20)]
        fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest_file())]
        with files_max(max(fillers) + 1):
            for client in sockets:
                client.connect(listener.address)
                client.sendall(hello_frame())
            assert await inside.call(Command.PUBLISH, b"inside") == b"inside"
        for descriptor in fillers:
            os.close(descriptor)
        for client in sockets:
            client.close()
        await until(lambda: len(listener.peers) <= 1)
        again = await connected(listener)

        assert await again.call(Command.PUBLISH, b"outside") == b"outside"
        await again.close()
        await inside.close()
