"""Many business transactions at once, rolled back and killed at random: the sums are exact.

Processes of their own trade (immediate send and sweeper), relay (`tern outbox relay`) and bill
(inbox). Whoever of them is killed is started again. Orders of one customer are numbered by the
transactions themselves, so the order of messages is checked against what was committed (Q9, Q16).
"""

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, text

from tests.integration.databases import TestDatabase
from tests.integration.outbox.shop import CUSTOMERS, ORDERS_MAX, patient_engine
from tests.integration.outbox.test_outbox import numbers, prepare, shop, stored
from tests.integration.processes import COMMAND, Node, clean_environment, tern
from tests.waiting import wait_until

TOPIC = "order.paid"
Process = subprocess.Popen[bytes]
ONE_NOW_ALL_LATER = pytest.mark.parametrize(
    ("database", "count"),
    [
        ("postgresql", 300),
        *(
            pytest.param(kind, 1_000, marks=pytest.mark.long)
            for kind in ("sqlite", "postgresql", "mariadb")
        ),
    ],
    indirect=["database"],
)


def open_shop(database: TestDatabase) -> Engine:
    engine = patient_engine(database.url)
    prepare(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (id INTEGER PRIMARY KEY, had INTEGER)"))
        for customer in range(CUSTOMERS):
            connection.execute(text("INSERT INTO customers VALUES (:id, 0)"), {"id": customer})
    return engine


def relay(node: Node, database: TestDatabase) -> Process:
    return subprocess.Popen(
        [*COMMAND, "outbox", "relay", "--database", database.url, "--poll", "0.05"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=clean_environment({"TERN_URL": node.url}),
    )


@contextmanager
def ended(processes: list[Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            end(process)


def end(process: Process) -> None:
    process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()


def check(node: Node, engine: Engine) -> None:
    """Messages are the committed orders, in each customer's order; so are the invoices."""
    orders = numbers(engine, "SELECT id FROM orders")
    wait_until(
        lambda: not numbers(engine, "SELECT id FROM tern_outbox"), "an empty outbox", seconds=60
    )
    messages = stored(node.url, TOPIC)
    assert sorted(messages) == orders
    for customer in range(CUSTOMERS):
        mine = [one for one in messages if one // ORDERS_MAX == customer]
        assert mine == [customer * ORDERS_MAX + had for had in range(1, len(mine) + 1)], "order"

    def settled() -> bool:
        [line] = tern("ledger", TOPIC, "billing", "--json", url=node.url).json()
        return bool(line["acked"] == line["total"] == len(orders))

    wait_until(settled, "every message handled", seconds=90)
    assert numbers(engine, "SELECT order_id FROM invoices") == orders
    [records] = numbers(engine, "SELECT COUNT(*) FROM tern_inbox")
    assert records == len(orders)


@pytest.mark.timeout(600)
@ONE_NOW_ALL_LATER
def test_messages_are_the_committed_transactions_and_effects_are_the_messages(
    database: TestDatabase, count: int, node: Node
) -> None:
    """Two traders with eight threads each; every third transaction rolls back."""
    engine = open_shop(database)
    arguments = (node.url, database.url, TOPIC)
    traders = [shop("trade", *arguments, str(seed), str(count // 2)) for seed in range(2)]
    others = [shop("bill", *arguments, "never"), relay(node, database)]
    with ended([*traders, *others]):
        for trader in traders:
            _, err = trader.communicate(timeout=300)
            assert trader.returncode == 0, err.decode()
        check(node, engine)
        committed = len(numbers(engine, "SELECT id FROM orders"))
        assert count // 2 < committed < count
    engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_so_they_are_when_everybody_is_killed_at_random(
    database: TestDatabase, node: Node, seed: int
) -> None:
    """Applications, consumers and relays die by kill -9 all the time, at last the applications."""
    engine = open_shop(database)
    arguments = (node.url, database.url, TOPIC)
    makers: list[Callable[[], Process]] = [
        lambda: shop("trade", *arguments, str(time.time_ns()), "0"),
        lambda: shop("trade", *arguments, str(time.time_ns()), "0"),
        lambda: shop("bill", *arguments, "never"),
        lambda: shop("bill", *arguments, "never"),
        lambda: relay(node, database),
        lambda: relay(node, database),
    ]
    running = [make() for make in makers]
    chance, killed = random.Random(seed), 0
    with ended(running):
        give_up = time.monotonic() + 300
        while len(numbers(engine, "SELECT id FROM orders")) < 700 or killed < 12:
            assert time.monotonic() < give_up
            time.sleep(chance.uniform(0.5, 2.5))  # Not for luck: this is the moment of the kill.
            victim = chance.randrange(len(running))
            end(running[victim])
            running[victim] = makers[victim]()
            killed += 1
        for trader in running[:2]:
            end(trader)
        check(node, engine)
    engine.dispose()
