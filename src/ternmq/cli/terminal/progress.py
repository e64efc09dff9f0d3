"""A progress bar on stderr while long work runs; nothing at all when stderr is not a terminal."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from ternmq.core.lifecycle import background

REFRESH_S = 0.2


@asynccontextmanager
async def progress(what: str, total: int | None, done: Callable[[], int]) -> AsyncIterator[None]:
    """Show how far `done()` is on its way to `total` (None: not known) while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        async def follow() -> None:
            while True:
                bar.update(task, completed=done())
                await asyncio.sleep(REFRESH_S)

        async with background(progress=follow):
            yield


@contextmanager
def byte_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for work that tells by itself how many bytes are done, of how many."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
