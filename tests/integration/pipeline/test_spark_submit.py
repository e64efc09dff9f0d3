"""The jobs on a cluster of processes, started by spark-submit, with our code sent along (P7)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pyspark
import pytest

import ternmq
from ternmq.sync import connect
from tests.integration.processes import Node, clean_environment

MARK = b"sent.along"
CLUSTER = "local-cluster[2,1,1024]"
"""A master and two workers with an executor each, all processes of their own."""


def marked_package(source: Path, tmp_path: Path) -> str:
    """Our code as an archive, with one change that is seen in every file it writes."""
    copy = tmp_path / "copy"
    shutil.copytree(source / "ternmq", copy / "ternmq", ignore=shutil.ignore_patterns("*.pyc"))
    writer = copy / "ternmq" / "pipeline" / "archive" / "writer.py"
    text = writer.read_text(encoding="utf-8")
    assert text.count('b"tern.schema":') == 1
    writer.write_text(text.replace('b"tern.schema":', f'{MARK!r}: b"1", b"tern.schema":'))
    return shutil.make_archive(str(tmp_path / "package"), "zip", copy, "ternmq")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_runs_on_a_cluster_with_its_code_from_an_archive(node: Node, tmp_path: Path) -> None:
    """P7: spark-submit --archives; the master is the submitter's, the tasks are in executors."""
    source = Path(ternmq.__file__).parents[1]
    package = marked_package(source, tmp_path)
    with connect(node.url, app="shop") as mq:
        for first in range(0, 5_000, 1_000):
            mq.send_many("orders", [b"%d" % n for n in range(first, first + 1_000)])
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    target = tmp_path / "archive"

    done = subprocess.run(
        [
            str(submit),
            "--master",
            CLUSTER,
            "--archives",
            f"{package}#package",
            "--conf",
            "spark.executorEnv.PYTHONPATH=./package",
            "--conf",
            "spark.executor.memory=512m",
            str(source / "ternmq" / "cli" / "main.py"),
            "pipeline",
            "archive",
            "--to",
            str(target),
            "--url",
            node.url,
            "--topics",
            "orders",
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=clean_environment(
            {
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
            }
        ),
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    assert "5000 messages and" in done.stdout
    files = f"read_parquet('{target}/messages/**/*.parquet')"
    question = f"select count(*), count(distinct id), max(sequence) from {files}"
    with duckdb.connect() as database:
        found = database.execute(question).fetchone()
    assert found == (5_000, 5_000, 4_999)
    marks = [pq.read_metadata(path).metadata for path in target.glob("messages/**/*.parquet")]
    assert marks and all(MARK in found for found in marks), "executors ran other code than was sent"
