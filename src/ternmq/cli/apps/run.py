"""`tern run MODULE:APP`: handlers as processes of their own."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ternmq.cli.terminal.output import note

WORKERS_MAX = 256


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="As shop.main:app.")],
    workers: Annotated[
        int, typer.Option(min=1, max=WORKERS_MAX, help="Processes that run the handlers.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a Python file changes.")
    ] = False,
    health: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, metavar="PORT", help="Answer /live and /ready there."),
    ] = None,
    health_host: Annotated[
        str, typer.Option(help="Address for health checks; 0.0.0.0 for those of other machines.")
    ] = "127.0.0.1",
    app_dir: Annotated[
        Path, typer.Option(help="Where the module is looked for, and changes with --reload.")
    ] = Path(),
) -> None:
    """Run the handlers of an app until SIGINT or SIGTERM; servers that are away are waited for.

    Handlers that run then may finish (`App(drain_timeout=…)`); a second signal does not wait.
    """
    from ternmq.cli.apps.app_target import load_app
    from ternmq.cli.apps.health import health_server
    from ternmq.cli.apps.workers import WorkerPool, is_worker, tell_ready
    from ternmq.cli.terminal.logs import configure
    from ternmq.core.process import run_loop

    folder = app_dir.resolve()
    if is_worker() or (workers == 1 and not reload):
        configure()
        app = load_app(target, folder)
        app.on_ready(tell_ready)

        async def serve() -> None:
            async with health_server(health_host, health, lambda: app.ready):
                await app.serve()

        run_loop(serve())
        return
    arguments = ["run", target, "--app-dir", str(folder)]
    supervised = WorkerPool(arguments, workers, note)

    async def supervise() -> None:
        async with health_server(health_host, health, lambda: supervised.ready):
            await supervised.run(folder if reload else None)

    asyncio.run(supervise())
