"""Encrypted topics with Spark: sink, source, archive and replay; erased is erased in all."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ternmq.pipeline.archive.job import ArchiveJob, Archiver
from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
from ternmq.security.private_files import write_new
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.sync import connect
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.processes import Node


@pytest.mark.long
def test_rows_go_in_and_out_encrypted_and_an_archive_keeps_them_so(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    write_new(tmp_path / "shop.key", new_key_text().encode())
    keys = f"shop=file:{tmp_path / 'shop.key'}"
    target = tmp_path / "archive"
    with connect(node.url, keys=keys) as mq:
        mq.admin.create_topic("orders", TopicSettings(master_key="shop"))
        mq.send("orders", b"canary ada", subject="ada")
        mq.send("orders", b"canary bob", subject="bob")
        frame = spark.range(0, 100, 1, 2).selectExpr("CONCAT('canary ', id) AS body")
        options = {"url": node.url, "topic": "orders", "keys": keys}
        frame.write.format("tern").options(**options).mode("append").save()
        wanted = sorted([b"canary ada", b"canary bob", *(b"canary %d" % n for n in range(100))])
        assert sorted(message.body for message in mq.read("orders")) == wanted

        source = spark.read.format("tern").option("url", node.url).option("subscribe", "orders")
        closed = source.load().select("body", "properties").collect()
        assert not [row for row in closed if b"canary" in bytes(row.body)]
        assert all("%seal" in row.properties for row in closed)
        opened = source.option("keys", keys).load().select("body").collect()
        assert sorted(bytes(row.body) for row in opened) == wanted

        archive = ArchiveJob(url=node.url, target=str(target), deliveries=False)
        Archiver(spark, archive).run_once(lambda _: None)
        assert not [
            path for path in target.rglob("*") if path.is_file() and b"canary" in path.read_bytes()
        ]
        plain = tmp_path / "plain"
        decrypting = ArchiveJob(url=node.url, target=str(plain), deliveries=False, keys=keys)
        Archiver(spark, decrypting).run_once(lambda _: None)
        kept = spark.read.parquet(str(plain / "messages")).select("body").collect()
        assert sorted(bytes(row.body) for row in kept) == wanted
        assert mq.admin.erase("ada") == ["orders"]
        replay = Replayer(
            spark,
            ReplayJob(url=node.url, archive=str(target), topic="orders", to_topic="again"),
        )
        replay.count(dry_run=False)
        assert replay.run(lambda _: None, lambda: False) == 102
    with connect(node.url, keys=keys) as mq:
        found = list(mq.read("again"))
        assert sum(message.erased for message in found) == 1
        left = sorted(message.body for message in found if not message.erased)
        assert left == [body for body in wanted if body != b"canary ada"]
