"""The jobs on a cluster of processes, started by spark-submit, with our code sent along (P7)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyspark
import pytest

import ternmq
from ternmq.sync import connect
from tests.integration.processes import Node, clean_environment

CLUSTER = "local-cluster[2,1,1024]"
"""A master and two workers with an executor each, all processes of their own."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_runs_on_a_cluster_with_its_code_from_an_archive(node: Node, tmp_path: Path) -> None:
    """P7: spark-submit --archives; the master is the submitter's, the tasks are in executors."""
    source = Path(ternmq.__file__).parents[1]
    package = shutil.make_archive(str(tmp_path / "package"), "zip", source, "ternmq")
    with connect(node.url, app="shop") as mq:
        for first in range(0, 5_000, 1_000):
            mq.send_many("orders", [b"%d" % n for n in range(first, first + 1_000)])
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    target = tmp_path / "archive"

    done = subprocess.run(
        [
            str(submit), "--master", CLUSTER, "--archives", f"{package}#package",
            "--conf", "spark.executorEnv.PYTHONPATH=./package",
            "--conf", "spark.executor.memory=512m",
            str(source / "ternmq" / "cli" / "main.py"),
            "pipeline", "archive", "--to", str(target), "--url", node.url, "--topics", "orders",
        ],
        capture_output=True, text=True, timeout=500, check=False,
        env=clean_environment(
            {
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
            }
        ),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-4_000:]
    assert "5000 messages and" in done.stdout
    files = f"read_parquet('{target}/messages/**/*.parquet')"
    question = f"select count(*), count(distinct id), max(sequence) from {files}"
    with duckdb.connect() as database:
        found = database.execute(question).fetchone()
    assert found == (5_000, 5_000, 4_999)
