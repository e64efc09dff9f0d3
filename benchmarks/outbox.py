"""What the outbox is asked: how fast a relay is, and what `outbox.send` adds to a transaction.

Real SQLite, PostgreSQL and MariaDB that sync every commit to the disk, and a node with flush = sync
(`tern up`). The relay figure: rows that an application left behind, until the last one is stored
and deleted. The overhead figure: transactions with one business row, the same with a second plain
INSERT of the same columns beside it, the same with `outbox.send`; all in one run, taking turns.
`python -m benchmarks.outbox [relay|overhead …] [--quick] [--databases sqlite,postgresql]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.delay import a_node
from benchmarks.own import in_process

SIZE = 100
KEYS = 1_000
"""Order keys, where there are any: as many as customers of a shop are busy at a time."""
DATABASES = ("sqlite", "postgresql", "mariadb")
TARGETS = {"sqlite": 5_000, "postgresql": 10_000}
OVERHEAD_ROUNDS = 7
POLL_S = 0.005
Fields = dict[str, Any]


def fill(database: str, count: int, keys: int) -> None:
    """Rows of an application that has no relay of its own."""
    import os

    from sqlalchemy import create_engine, delete, insert

    from ternmq.outbox import Outbox

    engine = create_engine(database)
    outbox = Outbox(engine)
    outbox.create_tables()
    body = os.urandom(SIZE)
    with engine.begin() as connection:
        connection.execute(delete(outbox.table))
        for first in range(0, count, 1_000):
            values = [
                outbox.values("left", body, {"order_key": f"k{number % keys}"} if keys else {})
                for number in range(first, min(count, first + 1_000))
            ]
            connection.execute(insert(outbox.table), values)
    engine.dispose()


def relay_load(url: str, database: str, count: int) -> Fields:
    """One relay until the table is empty."""
    import uvloop
    from sqlalchemy import create_engine

    import ternmq
    from benchmarks.peers.meter import own_cpu_seconds
    from ternmq.outbox import Outbox

    async def whole() -> Fields:
        engine = create_engine(database)
        async with ternmq.connect(url, app="bench") as mq:
            outbox = Outbox(engine, mq)
            await mq.send("left", b"warm")
            cpu, began = own_cpu_seconds(), time.monotonic()
            relaying = asyncio.create_task(outbox.relay.run(mq))
            while outbox.counts.sent < count:
                assert not relaying.done(), relaying.exception()
                await asyncio.sleep(POLL_S)
            took = time.monotonic() - began
            assert (outbox.counts.sent, outbox.counts.duplicates) == (count, 0), outbox.counts
            relaying.cancel()
            await asyncio.wait([relaying])
            cpu = own_cpu_seconds() - cpu
        engine.dispose()
        return {"rate": count / took, "seconds": took, "cpu_s_per_million": cpu / count * 1e6}

    return dict(uvloop.run(whole()))


def relay(database: str, *, count: int, keys: int = 0) -> Fields:
    """Best of three: the machine may be busy with something else, never with less."""
    runs = []
    for _ in range(3):
        with a_node() as (node, _):
            in_process(fill, database, count, keys)
            runs.append(in_process(relay_load, node.url(), database, count))
    return dict(max(runs, key=lambda run: float(run["rate"])), count=count, order_keys=keys)


def overhead_load(url: str, database: str, count: int) -> Fields:
    """Microseconds per transaction of each kind, and per insert; medians of rounds."""
    import os

    from sqlalchemy import create_engine, insert, text
    from sqlalchemy.orm import Session

    import ternmq
    from ternmq.outbox import Outbox, make_table

    engine = create_engine(database)
    plain = make_table("plain_rows")
    body = os.urandom(SIZE)
    took: dict[str, list[float]] = {}

    Outbox(engine).create_tables()
    with ternmq.sync.connect(url, app="bench") as mq, Outbox(engine, mq) as outbox:
        plain.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS payments (id BIGINT)"))
        row = outbox.values("sent", body, {"key": "o-1"})
        business = text("INSERT INTO payments VALUES (1)")

        def nothing(session: Session) -> None:
            session.execute(business)

        def insert_too(session: Session) -> None:
            session.execute(business)
            session.execute(insert(plain), row)

        def send_too(session: Session) -> None:
            session.execute(business)
            outbox.send(session, "sent", body, key="o-1")

        for _ in range(OVERHEAD_ROUNDS):
            for name, work in (("work", nothing), ("insert", insert_too), ("send", send_too)):
                began = time.perf_counter()
                for _ in range(count):
                    with Session(engine) as session, session.begin():
                        work(session)
                took.setdefault(name, []).append((time.perf_counter() - began) / count)
                outbox.flush(60)
        for name, many in (("insert_alone", insert_too), ("send_alone", send_too)):
            for _ in range(OVERHEAD_ROUNDS):
                with Session(engine) as session:
                    began = time.perf_counter()
                    for _ in range(count):
                        many(session)
                    took.setdefault(name, []).append((time.perf_counter() - began) / count)
                    session.rollback()
    engine.dispose()
    micro = {name: statistics.median(values) * 1e6 for name, values in took.items()}
    return {
        "transaction_us": micro["work"],
        "with_insert_us": micro["insert"],
        "with_send_us": micro["send"],
        "send_over_insert": micro["send"] / micro["insert"],
        "statement_insert_us": micro["insert_alone"],
        "statement_send_us": micro["send_alone"],
        "statement_send_over_insert": micro["send_alone"] / micro["insert_alone"],
    }


def overhead(database: str, *, count: int) -> Fields:
    with a_node() as (node, _):
        return dict(in_process(overhead_load, node.url(), database, count, deadline=300.0))


FIGURES: dict[str, Callable[[str, bool], Fields]] = {
    "relay": lambda url, quick: relay(url, count=10_000 if quick else 50_000),
    "relay-ordered": lambda url, quick: relay(url, count=10_000 if quick else 50_000, keys=KEYS),
    "overhead": lambda url, quick: overhead(url, count=100 if quick else 300),
}


def measure(options: argparse.Namespace, told: Callable[[str], None]) -> dict[str, Fields]:
    """The figures named, or all, on each database that is installed."""
    import pytest

    from tests.integration.databases import Servers, make_database

    found: dict[str, Fields] = {}
    servers = Servers(durable=True)
    try:
        for kind in options.databases.split(","):
            for name in options.figures or FIGURES:
                with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                    try:
                        database = make_database(kind, servers, Path(folder))
                    except pytest.skip.Exception as missing:
                        told(f"outbox {name} {kind}: left out: {missing}")
                        continue
                    found[f"{name} {kind}"] = FIGURES[name](database.url, options.quick)
                    told(f"outbox {name} {kind}: {found[f'{name} {kind}']}")
    finally:
        servers.finish()
    return found


def targets(found: dict[str, Fields]) -> list[tuple[str, float, float, str]]:
    """Name, value, target, side; for `benchmarks.run`."""
    return [
        (f"outbox: relayed a second, {kind}", found[f"relay {kind}"]["rate"], target, "at least")
        for kind, target in TARGETS.items()
        if f"relay {kind}" in found
    ]


def defaults(*, quick: bool) -> argparse.Namespace:
    """What `make bench` measures."""
    return argparse.Namespace(figures=[], quick=quick, databases=",".join(DATABASES))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help="all, if none is named")
    parser.add_argument("--quick", action="store_true", help="smaller counts")
    parser.add_argument("--databases", default=",".join(DATABASES), help="comma-separated")
    options = parser.parse_args()
    began = time.monotonic()
    found = measure(options, told=lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps({**found, "took_s": time.monotonic() - began}, indent=2))


if __name__ == "__main__":
    main()
