"""Registries for the contract suite: a backend added to BACKENDS runs every contract test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ternmq.meta.registries.registry import Registry
from ternmq.meta.registries.sql import SqlRegistry

Opener = Callable[[], Registry]


def _sqlite(directory: Path) -> Opener:
    return lambda: SqlRegistry.open_sqlite(directory / "registry.db")


BACKENDS: dict[str, Callable[[Path], Opener]] = {"sqlite": _sqlite}


@pytest.fixture(params=BACKENDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same registry each time it is called, as a restart would."""
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def registry(opener: Opener) -> Iterator[Registry]:
    opened = opener()
    yield opened
    opened.close()
