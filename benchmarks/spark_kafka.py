"""Spark's own Kafka source, beside ours in the same session: the same rows to the same nowhere.

One Kafka node (KRaft, its defaults) with a topic of as many partitions as our source has tasks. Its
jars are fetched by `benchmarks.peers.install`; where they or Kafka cannot be had the figure is
left out by name.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.java import SPARK_KAFKA
from benchmarks.peers.kafka import KafkaPeer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "bench"
BODIES = 10_000


def missing() -> str | None:
    """Why it cannot be measured here, or None."""
    return KafkaPeer(fsync=False).available() or SPARK_KAFKA.missing()


def session_settings() -> dict[str, str]:
    """What the session needs for it; nothing where it is missing."""
    if missing() is not None:
        return {}
    return {"spark.jars": ",".join(str(jar) for jar in sorted(SPARK_KAFKA.folder.glob("*.jar")))}


@contextmanager
def filled(count: int, size: int, partitions: int) -> Iterator[str]:
    """A Kafka node with `count` messages, shared out over the partitions; yields its address."""
    peer = KafkaPeer(fsync=False)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        peer.start(Path(folder))
        try:
            _fill(peer.address(), count, size, partitions)
            yield peer.address()
        finally:
            peer.stop()


def _fill(address: str, count: int, size: int, partitions: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings: dict[str, Any] = {"bootstrap.servers": address}
    new = NewTopic(TOPIC, num_partitions=partitions, replication_factor=1)
    admin = AdminClient(settings)
    admin.create_topics([new])[TOPIC].result(timeout=15)
    producer = Producer({**settings, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    bodies = [secrets.token_bytes(size) for _ in range(BODIES)]
    for number in range(count):
        if number % BODIES == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(TOPIC, bodies[number % BODIES], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(120)
    assert not left, f"{left} messages did not get into Kafka"


def to_noop(spark: SparkSession, address: str) -> None:
    """Key, offset and value, as few columns as ours in `source_few`."""
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", TOPIC)
        .load()
    )
    frame.select("key", "offset", "value").write.format("noop").mode("overwrite").save()
