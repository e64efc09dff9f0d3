"""One database of the application: the same work by a plain or by an async engine.

Work is a plain function of a connection. An async engine runs it by `run_sync` on the event loop, a
plain one in a thread, so that the loop never waits for a database. Every call is one transaction.
Never closes an engine: it belongs to the application.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ternmq.core.database import Ready

THREADS = 4  # Per database with a plain engine.

T = TypeVar("T")
DatabaseWork = Callable[[Connection], T]


def shown_url(url: URL) -> str:
    """For people and logs: without a password, which some drivers also take as an option."""
    return url.set(query={}).render_as_string(hide_password=True)


class Database:
    """An engine and how to use it from the event loop."""

    def __init__(self, engine: Engine | AsyncEngine) -> None:
        self.is_async = isinstance(engine, AsyncEngine)
        if engine.dialect.name in ("mysql", "mariadb"):
            # What a claim sees must be older than what the look for overtaken rows sees.
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        self.engine = engine
        self.plain: Engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        self._threads: ThreadPoolExecutor | None = None

    @property
    def name(self) -> str:
        return shown_url(self.plain.url)

    def owns(self, engine: Engine) -> bool:
        """Is this the same database, also through an engine with other options?"""
        return engine.pool is self.plain.pool or engine.url == self.plain.url

    async def run(self, work: DatabaseWork[T]) -> T:
        """One transaction, committed when this returns."""
        if isinstance(self.engine, AsyncEngine):
            async with self.engine.begin() as connection:
                return await connection.run_sync(work)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tern-database")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._begin, work)

    def _begin(self, work: DatabaseWork[T]) -> T:
        with self.plain.begin() as connection:
            return work(connection)

    def run_blocking(self, work: DatabaseWork[None]) -> Awaitable[None]:
        """Plain engines: done when this returns. Async engines: when it is awaited."""
        if self.is_async:
            return self.run(work)
        self._begin(work)
        return Ready(None)

    def forget(self) -> None:
        """In a forked child: the threads stayed with the parent."""
        self._threads = None
