"""Peers that are Java programs: which jars they need, where the cache keeps them, how they start.

`install` fills the cache through Maven; a driver only asks whether its folder is complete. The
versions are pinned here, so two runs compare the same servers.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.process import CACHE

COMPLETE = "complete"
"""Written last by `install`: a folder without it is a download that broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaServer:
    """A server by its Maven coordinates (group:artifact:version)."""

    name: str
    version: str
    artifacts: tuple[str, ...]
    alone: bool = False
    """Just these jars, without what they need."""

    @property
    def folder(self) -> Path:
        """Where its jars are."""
        return CACHE / f"{self.name}-{self.version}"

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if shutil.which("java") is None:
            return "java is not installed"
        if not (self.folder / COMPLETE).exists():
            return f"no jars in the cache: run python -m benchmarks.peers.install {self.name}"
        return None

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command that runs a main class out of the jars."""
        return ["java", *options, "-cp", str(self.folder / "*"), main_class, *arguments]


KAFKA = JavaServer(
    name="kafka",
    version="4.3.1",
    artifacts=("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-nop:1.7.36"),
)
ROCKETMQ = JavaServer(
    name="rocketmq",
    version="5.5.0",
    artifacts=(
        "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
        "org.apache.rocketmq:rocketmq-broker:5.5.0",
        "org.apache.rocketmq:rocketmq-proxy:5.5.0",
    ),
)
SPARK_KAFKA = JavaServer(
    name="spark-kafka",
    version="4.2.0",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    alone=True,
)
"""No server: the jars of Spark's own Kafka source, for `benchmarks.spark`. Spark brings the
rest, and not every version of every part is to be had: these work together with pyspark 4.3."""
