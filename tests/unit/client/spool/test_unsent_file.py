"""One-way messages that no broker stored, kept for people (D10)."""

import asyncio
import os
from pathlib import Path

import pytest

import ternmq
from ternmq.client.spool.unsent_file import look, put_back, take
from ternmq.core.errors import BadRequest, Corrupt, DiskFull, PutAside
from ternmq.rpc.server import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.numbers import Command
from tests.unit.client.fake_broker import FakeBroker


async def test_one_way_messages_that_a_broker_cannot_store_are_kept_whole(
    broker: FakeBroker, tmp_path: Path
) -> None:
    """D10: with id, reason and every option; who waits is told and nothing is kept for him."""
    broker.refuse(Command.PUBLISH, DiskFull("no room"))
    broker.delay_groups = ["later"]
    file = tmp_path / "unsent"
    async with ternmq.connect(broker.url, unsent=file, on_error=lambda topic, error: None) as mq:
        with pytest.raises(DiskFull):
            await mq.send("orders", b"waited for")
        assert not file.exists()
        mq.send_nowait("orders", b"bare")
        mq.send_nowait("orders", b"rich", key="k", tag="t", properties={"n": 2**70, "b": b"\xff"})
        mq.send_many_nowait("orders", [ternmq.Outgoing(body=b"own", explicit_id=b"mine")])
        mq.send_nowait("later", b"later", delay=3600)
        await mq.flush()

    kept = {one.message.body: one for one in look(file)}
    assert kept.keys() == {b"bare", b"rich", b"own", b"later"}
    assert {(one.code, one.topic) for one in kept.values()} == {
        ("disk_full", "orders"),
        ("disk_full", "later"),
    }
    rich = kept[b"rich"].message
    assert (rich.key, rich.tag, rich.properties) == ("k", "t", {"n": 2**70, "b": b"\xff"})
    assert len(kept[b"bare"].id) == 26
    assert kept[b"own"].message.explicit_id == b"mine"
    assert kept[b"later"].message.due_at_ms is not None
    assert file.stat().st_mode & 0o777 == 0o600


async def test_what_may_be_stored_is_kept_and_marked(broker: FakeBroker, tmp_path: Path) -> None:
    """D10: an answer that never came."""

    def silent(peer: Peer, frame: Frame) -> bool:
        return True

    broker.behave(Command.PUBLISH, silent)
    file = tmp_path / "unsent"
    async with ternmq.connect(broker.url, unsent=file, resend_times=0, resend_after=0.01) as mq:
        mq.send_nowait("orders", b"x")
        await mq.flush()
    [kept] = look(file)
    assert kept.code == "send_unknown"


async def test_what_a_broker_put_aside_is_not_kept_twice(
    broker: FakeBroker, tmp_path: Path
) -> None:
    """D10: the broker has it."""
    broker.refuse(Command.PUBLISH, PutAside("put aside", topic="orders"))
    file = tmp_path / "unsent"
    async with ternmq.connect(broker.url, unsent=file) as mq:
        mq.send_nowait("orders", b"x")
        await mq.flush()
        assert mq.stats().failed == 1
    assert look(file) == []


async def test_what_was_taken_and_not_handled_is_there_again(
    broker: FakeBroker, tmp_path: Path
) -> None:
    """D10: whoever handles them may die; the producer goes on meanwhile."""
    broker.refuse(Command.PUBLISH, DiskFull("no room"))
    file = tmp_path / "unsent"
    async with ternmq.connect(broker.url, unsent=file) as mq:
        mq.send_many_nowait("orders", [b"1", b"2"])
        await mq.flush()
        with pytest.raises(BadRequest), take(file) as found:
            assert [one.message.body for one in found] == [b"1", b"2"]
            mq.send_nowait("orders", b"3")
            await mq.flush()
            raise BadRequest("a mistake")
    assert [one.message.body for one in look(file)] == [b"1", b"2", b"3"]

    with take(file) as found:
        put_back(file, found[1:2])
    assert [one.message.body for one in look(file)] == [b"2"]
    assert not [name for name in await asyncio.to_thread(os.listdir, tmp_path) if "taken" in name]


def test_a_file_that_is_none_of_ours_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "unsent"
    file.write_text('{"id": 1}\n')
    with pytest.raises(Corrupt, match="not a line of an unsent file"):
        look(file)


def test_a_file_that_cannot_be_made_is_told_when_connecting(tmp_path: Path) -> None:
    with pytest.raises(ternmq.BadConfig, match="unsent is"):
        ternmq.connect("tern://127.0.0.1", unsent=tmp_path / "gone" / "file")
