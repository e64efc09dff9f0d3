"""Fixtures with real nodes; `processes.py` says what a `Node` can do.

A node whose stderr has a stack trace fails the test that used it.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.databases import database, servers
from tests.integration.processes import Node, NodeFactory
from tests.integration.s3 import s3
from tests.integration.zookeeper import zookeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database", "s3", "servers", "zookeeper"]  # Fixtures that live in a file of their own.


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: undo it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def node_factory(tmp_path: Path) -> Iterator[NodeFactory]:
    """Nodes with options: `node_factory(flush="async", auto_create=False, arguments=[…])`."""
    factory = NodeFactory(tmp_path)
    try:
        yield factory
    finally:
        factory.finish()


@pytest.fixture
def node(node_factory: NodeFactory) -> Node:
    """A node of one's own, with nothing in it."""
    return node_factory()


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for the whole run, for tests that only need topic names of their own."""
    factory = NodeFactory(tmp_path_factory.mktemp("shared"))
    try:
        yield factory()
    finally:
        factory.finish()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One local Spark for the whole run; starting one takes seconds."""
    from ternmq.pipeline.spark.session import spark_session

    # For the tests with S3, before the workers begin. The server of those tests does not take the
    # chunked checksums that newer clients send by default.
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    session = spark_session("tests", master="local[2,3]", conf=quick)
    try:
        yield session
    finally:
        session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark starts in its first test. Cutting that off on a busy machine breaks all that follow."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))
