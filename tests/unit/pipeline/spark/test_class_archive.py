"""The class archive is used where it is, and belongs to one Java and one PySpark."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from ternmq.core.errors import Unavailable
from ternmq.pipeline.spark import class_archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binary = tmp_path / "jdk" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n! grep -q damaged ${1#-XX:SharedArchiveFile=}\n")
    binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("TERN_CACHE", str(tmp_path / "cache"))
    return binary


def test_it_is_used_only_where_it_is(java: Path) -> None:
    found = class_archive.path()
    assert found is not None and class_archive.options() == ""

    found.parent.mkdir()
    found.touch()

    assert class_archive.options().startswith(f"-XX:SharedArchiveFile={found} ")


def test_another_java_has_another_one(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = class_archive.path()
    other = tmp_path / "newer" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "newer"))

    assert class_archive.path() != one


def test_without_java_there_is_none_and_making_it_says_so(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))

    assert class_archive.path() is None and class_archive.options() == ""
    with pytest.raises(Unavailable, match="Java 17"):
        class_archive.make(lambda _: pytest.fail("no Spark without Java"))


def ending(code: str, made: Path) -> Any:
    """A session whose JVM is this shell: it writes the archive, or not, when its stdin ends."""
    command = f"cat > /dev/null; {code.replace('FILE', str(made))}"
    proc = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE)
    return MagicMock(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=proc)))


def make(code: str) -> Path:
    target = class_archive.path()
    assert target is not None
    made = target.with_suffix(f".{os.getpid()}")
    return class_archive.make(lambda conf: ending(code, made))


def test_it_is_there_when_it_is_whole_and_old_pieces_go(java: Path, tmp_path: Path) -> None:
    target = class_archive.path()
    assert target is not None
    target.parent.mkdir()
    killed, alive = target.with_suffix(".999999999"), target.with_suffix(f".{os.getppid()}")
    killed.write_bytes(b"half")
    alive.write_bytes(b"somebody is writing it")

    assert make("echo whole > FILE") == target

    assert target.read_bytes() == b"whole\n"
    assert sorted(tmp_path.glob("cache/*")) == sorted([target, alive])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("echo half > FILE; exit 3", "ended with 3"),
        ("echo half > FILE; kill -9 $$", "ended with -9"),
        ("true", "wrote no archive"),
        ("echo damaged > FILE", "cannot use"),
        ("echo half > FILE; sleep 60", "within 0.5 s"),
    ],
)
def test_half_of_one_is_never_used(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(class_archive, "WRITE_WITHIN_S", 0.5)
    with pytest.raises(Unavailable, match=said):
        make(code)
    assert list(tmp_path.glob("cache/*")) == []
