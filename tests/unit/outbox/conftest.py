"""An application with a database of its own and a client that needs no node."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from tests.unit.outbox.fake_client import FakeMq


@pytest.fixture
def mq() -> Iterator[FakeMq]:
    fake = FakeMq()
    yield fake
    fake.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    yield made
    made.dispose()
