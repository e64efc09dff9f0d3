"""How a session with ZooKeeper is kept, without a server."""

import logging
from typing import Any

import pytest
from kazoo.client import KazooClient

from ternmq.core.errors import Unavailable
from ternmq.meta.zookeeper_tree import AGAIN, ZooKeeperTree


def test_a_zookeeper_that_was_away_for_long_is_found_again_within_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def start(client: Any, timeout: float = 15) -> None:
        seen.append(client._conn_retry)
        client.logger.warning("Connection dropped")
        raise OSError("nobody there")

    monkeypatch.setattr(KazooClient, "start", start)
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable, match="nobody there"):
        ZooKeeperTree.open("127.0.0.1:1", description="zk")
    [retry] = seen
    assert retry.max_delay == AGAIN["max_delay"] <= 3
    assert retry.max_tries == -1, "for ever"
    assert caplog.records == []
