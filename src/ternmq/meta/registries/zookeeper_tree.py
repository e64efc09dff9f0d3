"""ZooKeeper as a registry sees it: nodes below a path, changed in serial transactions, by kazoo.

`/state` is replaced by every change if nobody else did meanwhile, so changes happen one after the
other, whichever meta server asks, and its versions are their order. Who was overtaken looks again.
A change whose answer got lost is told as `Unavailable`.

kazoo keeps the session and moves to another ZooKeeper server by itself. Waits at most `ANSWER_S`.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError

from ternmq.core.errors import Unavailable
from ternmq.meta.registries.registry import NEWS_KEPT

ANSWER_S = 10.0
CONNECT_S = 10.0
SESSION_S = 10.0
AGAIN = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""How a lost connection is looked for. By itself kazoo rests up to an hour after a long outage."""
ATTEMPTS_MAX = 20
"""Changes are serial: with many meta servers busy at once somebody may be overtaken often."""
CHUNK = 250
"""Rows per transaction: a ZooKeeper server takes 1 MiB at most."""
TRIM_EVERY = 1_000

OVERTAKEN = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)

T = TypeVar("T")
K = TypeVar("K")


class State(msgspec.Struct, frozen=True):
    """The last ones given out."""

    version: int = 0
    topic_id: int = 0
    group_id: int = 0


class Overtaken(Exception):
    """Another meta server changed the registry since this one read it."""


class ZooKeeperTree:
    """A session with ZooKeeper servers."""

    def __init__(self, client: KazooClient, *, description: str) -> None:
        self.client = client
        self.description = description

    @classmethod
    def open(cls, hosts: str, *, description: str) -> "ZooKeeperTree":
        """Connect; raises `Unavailable`."""
        client = KazooClient(
            hosts=hosts, timeout=SESSION_S, connection_retry=dict(AGAIN), logger=_silent()
        )
        try:
            client.start(timeout=CONNECT_S)
        except (KazooTimeoutError, KazooException, OSError) as error:
            client.stop()
            client.close()
            raise Unavailable(f"the registry ({description}) does not answer: {error}") from error
        return cls(client, description=description)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def state(self) -> tuple[State, int]:
        """With the version of its node, for `commit`."""
        data, stat = self.asked(lambda: now(self.client.get_async("/state")))
        return msgspec.json.decode(data, type=State), stat.version

    def commit(self, change: TransactionRequest, after: State, at: int, topics: list[int]) -> None:
        """Everything in `change`, if `/state` is still what it was; else `Overtaken`."""
        after = msgspec.structs.replace(after, version=after.version + 1)
        change.set_data("/state", msgspec.json.encode(after), version=at)
        change.create(f"/news/{after.version}", msgspec.json.encode(topics))
        self.finish(change)
        if after.version % TRIM_EVERY == 0:
            threading.Thread(target=self._trim, args=(after.version,), daemon=True).start()

    def finish(self, change: TransactionRequest) -> None:
        """Everything in `change` or nothing; raises `Overtaken`, `Unavailable`."""
        results = self.asked(lambda: now(change.commit_async()))
        errors = [each for each in results if isinstance(each, KazooException)]
        causes = [
            each for each in errors if not isinstance(each, RolledBackError | RuntimeInconsistency)
        ]
        if any(isinstance(each, OVERTAKEN) for each in causes):
            raise Overtaken
        if errors:
            raise Unavailable(f"the registry ({self.description}) refused: {errors[0]!r}")

    def _trim(self, version: int) -> None:
        """Old news go; failing is no harm, the next one tries again."""
        for node in self.children("/news"):
            if int(node) <= version - NEWS_KEPT:
                try:
                    now(self.client.delete_async(f"/news/{node}"))
                except (KazooException, KazooTimeoutError):
                    return

    def repeated(self, work: Callable[[], T]) -> T:
        for _ in range(ATTEMPTS_MAX):
            try:
                return work()
            except Overtaken:
                continue
        raise Unavailable(f"the registry ({self.description}) is too busy; try again")

    def children(self, path: str) -> list[str]:
        def children() -> list[str]:
            try:
                return list(now(self.client.get_children_async(path)))
            except NoNodeError:
                return []

        return self.asked(children)

    def read(self, paths: Sequence[str]) -> list[bytes | None]:
        """All at once; None where there is nothing."""

        def read() -> list[bytes | None]:
            asked = [self.client.get_async(path) for path in paths]
            found: list[bytes | None] = []
            for each in asked:
                try:
                    found.append(now(each)[0])
                except NoNodeError:
                    found.append(None)
            return found

        return self.asked(read)

    def kept(self, path: str, first: str) -> str:
        def keep() -> str:
            try:
                now(self.client.create_async(path, first.encode()))
            except NodeExistsError:
                return str(now(self.client.get_async(path))[0].decode())
            return first

        return self.asked(keep)

    def asked(self, work: Callable[[], T]) -> T:
        """kazoo's errors become ours, once, here; those that tell something are passed on."""
        try:
            return work()
        except OVERTAKEN:
            raise
        except (KazooException, KazooTimeoutError, OSError) as error:
            text = str(error) or type(error).__name__
            raise Unavailable(
                f"the registry ({self.description}) does not answer: {text}"
            ) from error


def _silent() -> logging.Logger:
    """kazoo tells of every attempt, in lines of its own; we say once that nobody answers."""
    log = logging.getLogger("ternmq.kazoo")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def now(result: Any) -> Any:
    """kazoo itself would wait forever while no server is there."""
    return result.get(timeout=ANSWER_S)


def chunks(values: Iterable[K]) -> Iterable[list[K]]:
    everything = list(values)
    for first in range(0, len(everything), CHUNK):
        yield everything[first : first + CHUNK]
