"""Every column of every way to a topic is the same in the source, the archive and the trace.

P1, P3, P4, R23: sent at once, delayed, half, through the outbox, dead and resent, replayed from an
archive.
"""

import json
import random
import re
import string
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from ternmq.outbox import Outbox
from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.archive.reader import archived_rows
from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
from ternmq.pipeline.jobs.trace import TraceJob, trace
from ternmq.sync import connect
from tests.integration.processes import Node, tern
from tests.unit.pipeline.archive.test_repair import TEXTS, archive, packed
from tests.waiting import wait_until

ROWS = 12
LETTERS = string.ascii_letters + string.digits + " é漢\n\t'\"%"
ADDRESS = re.compile(r"(127\.0\.0\.1|\[::1\]):\d+")
WAYS = ("direct", "delayed", "half", "outbox")


def rows(seed: str) -> list[dict[str, Any]]:
    """Options of sends, with every column there or not."""
    chance = random.Random(seed)

    def text(size: int) -> str:
        return "".join(chance.choices(LETTERS, k=chance.randint(1, size)))

    found: list[dict[str, Any]] = []
    for number in range(ROWS):
        options = {"key": text(12), "tag": text(5), "order_key": text(8)}
        kept = {name: value for name, value in options.items() if chance.random() < 0.7}
        properties = {text(6): text(9) for _ in range(chance.randint(0, 3))}
        body = f"{seed} {number} {text(40)}".encode()
        found.append({"body": body, "properties": properties, **kept})
    return found


def send_all(node: Node, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Some rows along every way, each to a topic of its name."""
    sent = {way: rows(way) for way in WAYS}
    engine = create_engine(f"sqlite:///{folder / 'shop.db'}")
    with connect(node.url, app="shop") as mq:
        for row in sent["direct"]:
            mq.send("direct", **row)
        for row in sent["delayed"]:
            mq.send("delayed", **row, delay=0.05)
        mq.transaction_checker(lambda _: None)  # type: ignore[arg-type, return-value]
        with mq.transaction() as tx:
            for row in sent["half"]:
                tx.send("half", **row)
    outbox = Outbox(engine)
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        for row in sent["outbox"]:
            outbox.send(session, "outbox", **row)
    engine.dispose()
    tern("outbox", "relay", "--once", "-d", f"sqlite:///{folder / 'shop.db'}", url=node.url)
    with connect(node.url) as mq:
        for way in WAYS:
            stored = partial(lambda topic: len(list(mq.read(topic))) == ROWS, way)
            wait_until(stored, f"all of {way}", seconds=30)
    return sent


def die_and_come_again(node: Node) -> None:
    """All of `direct` are rejected, sent again and acked."""
    with connect(node.url, app="billing") as mq:
        with mq.consumer("direct", group="billing") as consumer:
            for number, message in enumerate(consumer, start=1):
                message.reject(f"no such customer {number}", error=KeyError("customer"))
                if number == ROWS:
                    break
            consumer.flush()
        mq.admin.resend_dead_letters("billing", mq.admin.open_dead_letters("billing"))
        with mq.consumer("direct", group="billing") as consumer:
            for number, message in enumerate(consumer, start=1):
                message.ack()
                if number == ROWS:
                    break
            consumer.flush()


def expected(node: Node, topic: str) -> list[dict[str, Any]]:
    """The columns as Python sees them."""
    with connect(node.url) as mq:
        return [
            {
                "id": message.id,
                "sequence": message.sequence,
                "body": message.body,
                "key": message.key,
                "tag": message.tag,
                "order_key": message.order_key,
                "properties": {n: str(v) for n, v in message.properties.items()},
                "born_at": message.born_at,
                "stored_at": message.stored_at,
                "app": message.app,
                "size": len(message.body),
            }
            for message in mq.read(topic)
        ]


def without_address(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in found:
        assert ADDRESS.fullmatch(row["client_address"]), row
    left = ("client_address", "topic", "broker_group", "date", "timeline")
    cut = [{n: v for n, v in row.items() if n not in left} for row in found]
    return sorted(cut, key=lambda row: row["sequence"])


def of(topic: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["topic"] == topic]


def by_body(row: dict[str, Any]) -> bytes:
    body: bytes = row["body"]
    return body


def as_sent(row: dict[str, Any]) -> dict[str, Any]:
    """Without what brokers add."""
    names = ("body", "key", "tag", "order_key")
    kept = {name: row[name] for name in names if row[name] is not None}
    properties = {n: v for n, v in row["properties"].items() if n not in ("%topic", "%replayed")}
    return kept | {"properties": properties}


def test_every_column_of_every_way_is_the_same_for_every_reader(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    sent = send_all(node, tmp_path)
    die_and_come_again(node)
    target = str(tmp_path / "archive")
    Archiver(spark, ArchiveJob(url=node.url, target=target)).run_once(lambda _: None)
    for way in WAYS:
        replay = ReplayJob(url=node.url, archive=target, topic=way, to_topic=f"again_{way}")
        replayer = Replayer(spark, replay)
        replayer.count(dry_run=False)
        assert replayer.run(lambda _: None, lambda: False) == ROWS
    Archiver(spark, ArchiveJob(url=node.url, target=target)).run_once(lambda _: None)

    topics = [*WAYS, *(f"again_{way}" for way in WAYS), "%dead.billing"]
    options = {"url": node.url, "subscribe": ",".join(topics), "includeProperties": "true"}
    table = spark.read.format("tern").options(**options).load().toArrow()
    by_source = table.to_pylist(maps_as_pydicts="strict")
    by_arrow = pq.read_table(f"{target}/messages").to_pylist(maps_as_pydicts="strict")
    search = ArchiveSearch(target)
    for topic in topics:
        truth = expected(node, topic)
        assert without_address(of(topic, by_source)) == truth
        if topic == "%dead.billing":  # Hidden: not archived.
            assert {row["app"] for row in truth} == {"shop"}
            continue
        assert without_address(of(topic, by_arrow)) == truth
        assert without_address(search.messages(SearchTerms(topic=topic))) == truth
        assert [as_sent(row) for row in sorted(truth, key=by_body)] == sorted(
            sent[topic.removeprefix("again_")], key=by_body
        )
        assert {row["app"] for row in truth} == {"tern-cli" if "outbox" in topic else "shop"}
    for way in WAYS:
        first, again = (
            {row["id"]: row["client_address"] for row in of(topic, by_source)}
            for topic in (way, f"again_{way}")
        )
        assert first == again, "a replay keeps where a message came from"
    asked = f"select count(*) from '{target}/messages/**/*.parquet'"
    assert duckdb.connect().execute(asked).fetchall() == [(2 * len(WAYS) * ROWS,)]
    found = tern("pipeline", "find", "--archive", target, "--id", by_source[0]["id"], "--json")
    assert json.loads(found.out)
    tables = trace(spark, TraceJob(archive=target))
    assert {row["never_acked"] for row in tables["audit"] if row["topic"] == "direct"} == {0}


def test_a_topic_is_copied_in_one_line(spark: SparkSession, shared_node: Node) -> None:
    """P2: the source's own columns and its topic are left out; ids stay."""
    url, source, copy = shared_node.url, f"one-{uuid4().hex[:8]}", f"two-{uuid4().hex[:8]}"
    with connect(url, app="shop") as mq:
        for row in rows("copy"):
            mq.send(source, **row)

    reading = spark.read.format("tern").options(url=url, subscribe=source)
    reading.load().write.format("tern").mode("append").options(url=url, topic=copy).save()

    kept = ("id", "body", "key", "tag", "order_key", "properties", "born_at")
    first, second = (
        sorted(
            ({name: row[name] for name in kept} for row in expected(shared_node, topic)),
            key=by_body,
        )
        for topic in (source, copy)
    )
    assert second == first


def test_delivery_records_say_why_in_words_and_only_those_of_the_topics_are_archived(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P3, R23: a retry's error and a rejected one's reason; `--topics` is about both kinds."""
    with connect(node.url, app="shop") as mq:
        for topic in ("orders", "bills"):
            mq.send(topic, b"x")
            with mq.consumer(topic, group=f"{topic}-group") as consumer:
                for message in consumer:
                    if message.attempt == 1:
                        message.retry(after=0, error=TimeoutError("bank 7 says nothing"))
                    else:
                        message.reject("no such bank")
                        break
                consumer.flush()
    some, both = str(tmp_path / "some"), str(tmp_path / "both")

    def archive(target: str, *topics: str) -> list[dict[str, Any]]:
        job = ArchiveJob(url=node.url, target=target, topics=topics)
        Archiver(spark, job).run_once(lambda _: None)
        return pq.read_table(f"{target}/deliveries").to_pylist()  # type: ignore[no-any-return]

    options = {"url": node.url, "stream": "deliveries"}
    live = spark.read.format("tern").options(**options).load().toArrow().to_pylist()
    for found in (live, archive(some, "orders")):
        texts = {row["event"]: row["text"] for row in found if row["topic"] == "orders"}
        assert texts["retry"].startswith("TimeoutError: bank 7 says nothing")
        assert texts["dead"] == "no such bank"
    assert {row["topic"] for row in archive(some, "orders")} == {"orders"}
    [row] = ArchiveSearch(some).messages(SearchTerms(topic="orders"))
    shown = tern("pipeline", "find", "--archive", some, "--id", row["id"]).out
    assert "TimeoutError: bank 7 says nothing" in shown and "no such bank" in shown

    def places(found: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
        return sorted((row["position"], row["sequence"], row["topic"]) for row in found)

    whole = places(archive(both))
    assert places(archive(some)) == whole, "what the first job left out comes with the second"
    assert places(archive(some, "orders")) == whole, "and nothing comes twice"


def test_spark_reads_the_addresses_of_release_0_1_as_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = archive(tmp_path / "a", packed(), [text.encode() for text in TEXTS])
    store = ArchiveStore(target)

    found = archived_rows(spark, store, list(store.load().files.values())).orderBy("sequence")

    texts = found.select("client_address").toArrow().column(0).to_pylist()
    long = [text.replace("::1", "0:0:0:0:0:0:0:1") for text in TEXTS]
    long = [text.replace("2001:db8::7", "2001:db8:0:0:0:0:0:7") for text in long]
    assert texts == [*long, *TEXTS]
