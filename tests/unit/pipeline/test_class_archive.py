"""The class archive is used where it is, and belongs to one Java and one PySpark."""

from pathlib import Path

import pytest

from ternmq.core.errors import Unavailable
from ternmq.pipeline import class_archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binary = tmp_path / "jdk" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.touch()
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
