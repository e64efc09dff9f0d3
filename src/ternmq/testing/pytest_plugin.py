"""Fixtures for tests of applications: a real node in process, and a client of it.

    def test_an_order_is_billed(tern_mq, tern_topic):
        tern_mq.send(tern_topic, b"o-1")

pytest finds them by itself where ternmq is installed. The node runs in the background thread of
`ternmq.sync`, once for all tests of a run, so names must not collide: `tern_topic` is a new one for
each test. A test that turns the clock has a node of its own: `tern_clock`, `tern_node`, `tern`.
Importing this module imports nothing of ternmq: a run that uses no fixture pays nothing.
"""

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ternmq.sync import Client
    from ternmq.testing.clock import TurnedClock


@pytest.fixture(scope="session")
def tern_url() -> Iterator[str]:
    """The url of a node that runs as long as the tests do."""
    from ternmq.testing.node import node

    with node() as url:
        yield url


@pytest.fixture
def tern_mq(tern_url: str) -> "Iterator[Client]":
    """A client of that node without `await`; `ternmq.connect(tern_url)` is one with."""
    from ternmq import sync

    with sync.connect(tern_url, app="test") as mq:
        yield mq


@pytest.fixture
def tern_topic() -> str:
    """A name that no other test has."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def tern_clock() -> "TurnedClock":
    """The clock of `tern_node`: it stands still until the test turns it."""
    from ternmq.testing.clock import TurnedClock

    return TurnedClock()


@pytest.fixture
def tern_node(tern_clock: "TurnedClock") -> Iterator[str]:
    """The url of a node of this test's own, which goes by `tern_clock`."""
    from ternmq.testing.node import node

    with node(clock=tern_clock) as url:
        yield url


@pytest.fixture
def tern(tern_node: str) -> "Iterator[Client]":
    """A client of that node without `await`."""
    from ternmq import sync

    with sync.connect(tern_node, app="test") as mq:
        yield mq
