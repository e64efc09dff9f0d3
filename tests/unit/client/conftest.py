"""A fake broker and a client on it."""

from collections.abc import AsyncIterator

import pytest

import ternmq
from tests.unit.client.fake_broker import FakeBroker, fake_broker


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as made:
        yield made


@pytest.fixture
async def mq(broker: FakeBroker) -> AsyncIterator[ternmq.Client]:
    async with ternmq.connect(broker.url, app="shop") as client:
        yield client
