"""One guarded server a test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.rpc.guarded.guarded_server import GuardedServer, guarded_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[GuardedServer]:
    async with guarded_server(tmp_path) as running:
        yield running
