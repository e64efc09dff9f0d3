"""`tern outbox relay`, several at once, killed, and hours later; the broker restarted (Q9)."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

import ternmq
from ternmq.outbox import Outbox
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.databases import Servers, TestDatabase, make_database
from tests.integration.outbox.test_outbox import numbers, stored
from tests.integration.processes import COMMAND, Node, NodeFactory, clean_environment, tern
from tests.integration.turned_clock import SharedClock
from tests.waiting import wait_until

ROWS = "SELECT id FROM tern_outbox"
KEYS = 7


@pytest.fixture
def engine(database: TestDatabase) -> Iterator[Engine]:
    made = database.engine()
    Outbox(made).create_tables()
    yield made
    made.dispose()


def leave(engine: Engine, topic: str, count: int) -> None:
    """Rows of an application that is gone; every second one has an order key."""
    outbox = Outbox(engine)
    with Session(engine) as session, session.begin():
        for number in range(count):
            key = f"k{number % KEYS}" if number % 2 else None
            outbox.send(session, topic, b"%d" % number, order_key=key)


class RelayProcess:
    """One `tern outbox relay`; its counts are in a file when it has ended."""

    def __init__(self, node: Node, database: TestDatabase, out: Path, *arguments: str) -> None:
        self._out, self.err = out, out.with_suffix(".err")
        with out.open("wb") as file, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *COMMAND,
                    "outbox",
                    "relay",
                    "--database",
                    database.url,
                    "--json",
                    "--poll",
                    "0.05",
                    *arguments,
                ],
                stdout=file,
                stderr=err,
                env=clean_environment({"TERN_URL": node.url}),
            )

    def wait_ready(self) -> None:
        wait_until(lambda: b"ready" in self._out.read_bytes(), "a ready relay", seconds=60)

    def stop(self) -> dict[str, int]:
        self.process.terminate()
        assert self.process.wait(30) == 0
        _, _, counts = self._out.read_text().partition("\n")
        return dict(json.loads(counts))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def check_order(messages: list[int]) -> None:
    for key in range(KEYS):
        mine = [one for one in messages if one % 2 and one % KEYS == key]
        assert mine == sorted(mine)


@pytest.mark.parametrize(
    "database",
    ["postgresql", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("mariadb", "sqlite"))],
    indirect=True,
)
def test_three_relays_do_the_work_once(
    database: TestDatabase, engine: Engine, shared_node: Node, tmp_path: Path
) -> None:
    """Processes of their own; none sends what another has, order keys keep their order."""
    topic, count = f"relays.{database.kind}", 2_000
    arguments = ("--rows-max", "50")
    relays = [
        RelayProcess(shared_node, database, tmp_path / str(number), *arguments)
        for number in range(3)
    ]
    try:
        for relay in relays:
            relay.wait_ready()
        leave(engine, topic, count)
        wait_until(lambda: not numbers(engine, ROWS), "an empty outbox", seconds=60)
        counts = [relay.stop() for relay in relays]
    finally:
        for relay in relays:
            relay.kill()

    assert sum(one["sent"] for one in counts) == count
    assert sum(one["duplicates"] + one["failed"] for one in counts) == 0
    # SQLite's lock is not fair: one of the three may never get it while others work.
    assert sum(one["sent"] > 0 for one in counts) >= 2
    messages = stored(shared_node.url, topic)
    assert sorted(messages) == list(range(count))
    check_order(messages)


def test_a_relay_and_the_broker_are_killed_in_the_middle(
    servers: Servers, node: Node, tmp_path: Path
) -> None:
    """What the dead relay had claimed is sent by the next when the claim is over."""
    database, count = make_database("postgresql", servers, tmp_path), 300
    engine = database.engine()
    Outbox(engine).create_tables()
    leave(engine, "t", count)
    first = RelayProcess(node, database, tmp_path / "1", "--rows-max", "20", "--lease", "2")
    wait_until(lambda: 0 < len(numbers(engine, ROWS)) < count - 40, "some work", seconds=60)
    first.kill()
    left = len(numbers(engine, ROWS))
    assert left > 0
    second = RelayProcess(node, database, tmp_path / "2", "--rows-max", "20", "--lease", "2")
    try:
        wait_until(lambda: len(numbers(engine, ROWS)) < left, "more work", seconds=60)
        node.kill()
        node.start()
        wait_until(lambda: not numbers(engine, ROWS), "an empty outbox", seconds=60)
        counts = second.stop()
    finally:
        second.kill()

    assert counts["parked"] == 0
    messages = stored(node.url, "t")
    assert sorted(messages) == list(range(count))
    check_order(messages)
    engine.dispose()


def test_a_relay_that_comes_before_the_cluster_waits_for_it(
    servers: Servers, node: Node, tmp_path: Path
) -> None:
    """A service started at boot must not end because others are not up yet; it says so."""
    database = make_database("sqlite", servers, tmp_path)
    engine = database.engine()
    Outbox(engine).create_tables()
    leave(engine, "t", 3)
    node.kill()
    relay = RelayProcess(node, database, tmp_path / "1")
    try:
        waiting = b"waiting for the cluster: cannot reach"
        wait_until(lambda: waiting in relay.err.read_bytes(), "a word", seconds=60)
        node.start()
        wait_until(lambda: not numbers(engine, ROWS), "an empty outbox", seconds=60)
        assert relay.stop()["sent"] == 3
    finally:
        relay.kill()
    assert relay.err.read_bytes().count(b"waiting") == 1
    engine.dispose()


def test_a_relay_hours_later_makes_no_duplicate(
    servers: Servers, node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Rows whose delete was lost come back after twenty hours and a restart of the broker."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(prefix=clock.prefix)
    database = make_database("sqlite", servers, tmp_path)
    engine = database.engine()
    Outbox(engine).create_tables()
    leave(engine, "t", 20)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE backup AS SELECT * FROM tern_outbox"))
    once = ("outbox", "relay", "--once", "--database", database.url, "--json")
    assert tern(*once, url=node.url).json()["sent"] == 20

    clock.turn(20 * 3600)
    node.restart()
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO tern_outbox SELECT * FROM backup"))
    again = tern(*once, url=node.url).json()

    assert (again["sent"], again["duplicates"]) == (20, 20)
    assert not numbers(engine, ROWS)
    assert sorted(stored(node.url, "t")) == list(range(20))
    engine.dispose()


def test_what_can_never_be_stored_is_parked_and_shown(
    servers: Servers, shared_node: Node, tmp_path: Path
) -> None:
    """Too large for its topic; written by a release that is newer than the relay."""
    database = make_database("sqlite", servers, tmp_path)
    engine = database.engine()
    outbox = Outbox(engine)
    outbox.create_tables()
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.admin.create_topic("small", TopicSettings(body_size_max=1024))
    with Session(engine) as session, session.begin():
        outbox.send(session, "small", b"1")
        outbox.send(session, "small", b"x" * 2_000)
        outbox.send(session, "small", b"3")
        outbox.send(session, "small", b"4")
    with engine.begin() as connection:
        connection.execute(text("UPDATE tern_outbox SET content = X'9109' WHERE id = 3"))
    where = ("--database", database.url)

    ran = tern("outbox", "relay", "--once", *where, "--json", url=shared_node.url).json()

    assert (ran["sent"], ran["parked"]) == (2, 2)
    large, newer = tern("outbox", "list", "--parked", *where, "--json").json()
    assert (large["row"], newer["row"]) == (2, 3)
    assert "1024" in large["error"]
    assert "update the relay" in newer["error"]
    assert stored(shared_node.url, "small") == [1, 4]
    engine.dispose()
