"""A session whose workers lack ternmq is refused with what to set (P1, P7)."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest
from ternmq.pipeline.spark.session import first_line
from ternmq.pipeline.spark.worker_python import check_workers


def session(python: str) -> SparkSession:
    return cast(SparkSession, SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python)))


def bare_python(folder: Path, *, option: str = "") -> str:
    """This interpreter; `-I -S` leaves it without anything that is installed."""
    path = folder / "python-of-workers"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {option} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_workers_without_ternmq_are_refused_by_name(tmp_path: Path) -> None:
    python = bare_python(tmp_path, option="-I -S")

    with pytest.raises(BadRequest, match=r"No module named 'ternmq'.*set PYSPARK_PYTHON") as caught:
        check_workers(session(python))
    assert python in caught.value.message


def test_another_python_that_has_it_will_do(tmp_path: Path) -> None:
    check_workers(session(bare_python(tmp_path)))
    check_workers(session(sys.executable))
    check_workers(session("/only/on/other/machines/python3"))


def test_a_task_that_fails_for_want_of_it_says_so_too() -> None:
    error = RuntimeError("Job aborted\n ModuleNotFoundError: No module named 'ternmq'\n at java")

    assert "set PYSPARK_PYTHON" in first_line(error)
