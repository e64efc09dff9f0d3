"""An application with a database on a real server and a client that needs no node."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.pool import QueuePool

from tests.integration.databases import TestDatabase
from tests.unit.outbox.conftest import mq as mq
from tests.waiting import wait_until


@pytest.fixture
def engine(database: TestDatabase) -> Iterator[Engine]:
    made = database.engine()
    yield made
    pool = made.pool
    if isinstance(pool, QueuePool):  # One that a relay holds until later would be left open.
        # MariaDB lets one wait 50 s for a lock that a lost session still has.
        wait_until(lambda: pool.checkedout() == 0, "connections given back", seconds=60)
    made.dispose()
