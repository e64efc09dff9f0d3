"""How a session with ZooKeeper is kept, without a server."""

from typing import Any

import pytest
from kazoo.client import KazooClient

from ternmq.core.errors import Unavailable
from ternmq.meta.registries.zookeeper_tree import AGAIN, ZooKeeperTree


def test_a_zookeeper_that_was_away_for_long_is_found_again_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def start(client: Any, timeout: float = 15) -> None:
        seen.extend((client._conn_retry, client.logger))
        raise OSError("nobody there")

    monkeypatch.setattr(KazooClient, "start", start)
    with pytest.raises(Unavailable, match="nobody there"):
        ZooKeeperTree.open("127.0.0.1:1", description="zk")
    retry, logger = seen
    assert retry.max_delay == AGAIN["max_delay"] <= 3
    assert retry.max_tries == -1, "for ever"
    assert not logger.propagate, "we say once that nobody answers, kazoo nothing"
