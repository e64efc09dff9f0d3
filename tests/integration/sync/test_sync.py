"""The blocking client against a real node."""

from pathlib import Path

import ternmq.sync
from tests.integration.processes import Node


def test_broadcast_without_await(shared_node: Node, tmp_path: Path) -> None:
    """Q15: every instance, every message, from when it came in."""
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.send("sync.broadcast", b"before")
        with mq.broadcast("sync.broadcast", position=tmp_path / "place") as every:
            mq.send_many("sync.broadcast", [b"one", b"two"])
            messages = iter(every)
            heard = [next(messages).body, next(messages).body]

    assert heard == [b"one", b"two"]
