"""`tern console`: the web console and the HTTP API as a process of their own."""

import asyncio
import sys
from typing import Annotated

import typer

from ternmq.cli.terminal.options import URL, Url
from ternmq.cli.terminal.output import note, say


def console(
    url: Url = URL,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 7780,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the web console and the HTTP API, on loopback; `tern up` starts one by itself.

    It waits for the cluster. When it listens, one line `ready http://HOST:PORT` appears on stdout.
    """
    from ternmq.cli.terminal.logs import configure
    from ternmq.console.process import ConsoleConfig
    from ternmq.core.process import run_loop

    configure(level="warning")
    run_loop(_run(ConsoleConfig(url=url, host=host, port=port)))


async def _run(config: "object") -> None:
    from ternmq.cli.processes.stopping import Stopper
    from ternmq.console.process import ConsoleConfig, serving_console
    from ternmq.core.clock import SystemClock
    from ternmq.core.lifecycle import report_bugs

    assert isinstance(config, ConsoleConfig)
    report_bugs()
    stopper = Stopper()
    stopper.install()
    try:
        async with serving_console(config, SystemClock()) as address:
            note(f"the console is at {address}; the HTTP API at {address}/api/v1; Ctrl-C stops it")
            say(f"ready {address}")
            sys.stdout.flush()
            await stopper.asked.wait()
    except* asyncio.CancelledError:
        pass
    finally:
        stopper.done()
