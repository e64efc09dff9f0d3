"""Delayed messages of transactions: once, at their time, whoever dies after the commit (P2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ternmq
from ternmq.batch.encoder import Columns, Section
from ternmq.batch.layout import Attribute, Column, ColumnPart, Type
from ternmq.core.errors import BadRequest
from ternmq.core.ids import id_from_text
from ternmq.delay.formats import checkpoint
from ternmq.delay.intake.take_committed import CommittedTaker, producer_of
from ternmq.storage.messages.producers import ProducerTable
from ternmq.testing import TurnedClock, node
from tests.waiting import until

JOB = "query:7"
HOUR_MS = 3_600_000


def columns(clock: TurnedClock, *bodies: bytes, after_ms: int = HOUR_MS) -> Columns:
    offsets = np.cumsum([0, *map(len, bodies)]).astype("<i4").tobytes()
    due = np.full(len(bodies), clock.now_ms() + after_ms, "<i8").tobytes()
    pieces = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"".join(bodies)),
        Section(Column.DUE, ColumnPart.VALUES, Type.INT64, due),
    ]
    return Columns(pieces, len(bodies), sum(map(len, bodies)), clock.now_ms())


async def stage(mq: ternmq.Client, attempt: int, made: Columns, *, name: str = JOB) -> None:
    task = mq.detached(name, attempt=attempt, fenced=False, expires=259_200)
    await task.send_columns("orders", made, later="main")


async def bodies(mq: ternmq.Client) -> list[bytes]:
    if "orders" not in [known.name for known in await mq.admin.topics()]:
        return []
    return [message.body async for message in mq.read("orders")]


async def accepted(mq: ternmq.Client) -> int:
    lines = await mq.admin.delays.ledger()
    return sum(line.accepted for line in lines)


async def taken_over(mq: ternmq.Client, count: int) -> None:
    """So many are the delay server's."""

    async def reached() -> bool:
        return await accepted(mq) >= count

    await until(reached, f"{count} for later")


async def seen(mq: ternmq.Client, count: int) -> list[bytes]:
    async def reached() -> bool:
        return len(await bodies(mq)) >= count

    await until(reached, f"{count} messages")
    return await bodies(mq)


@asynccontextmanager
async def client(tmp_path: Path, clock: TurnedClock, **more: Any) -> AsyncIterator[ternmq.Client]:
    async with (
        node(data_dir=tmp_path, clock=clock, **more) as url,
        ternmq.connect(url, app="spark") as mq,
    ):
        yield mq


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
async def mq(tmp_path: Path, clock: TurnedClock) -> AsyncIterator[ternmq.Client]:
    async with client(tmp_path, clock) as found:
        yield found


async def test_rows_come_at_their_time_once_however_often_they_are_committed(
    mq: ternmq.Client, clock: TurnedClock
) -> None:
    await stage(mq, 1, columns(clock, b"a", b"b"))
    await stage(mq, 2, columns(clock, b"zombie"))
    assert await accepted(mq) == 0, "nothing is seen before the commit, by nobody"
    for _ in range(3):
        ending = await mq.commit_detached(JOB, [1], "main", fenced=False)
        assert ending.attempts == [1]
    await taken_over(mq, 2)
    clock.turn(3_590)
    await asyncio.sleep(0.3)
    assert await bodies(mq) == []
    clock.turn(20)
    assert await seen(mq, 2) == [b"a", b"b"]
    await asyncio.sleep(0.3)
    assert (await accepted(mq), await bodies(mq)) == (2, [b"a", b"b"])


async def test_what_is_aborted_is_never_seen(mq: ternmq.Client, clock: TurnedClock) -> None:
    await stage(mq, 1, columns(clock, b"no"))
    await mq.abort_detached(JOB, [1], "main", fenced=False)
    await stage(mq, 1, columns(clock, b"yes"), name="query:8")
    await mq.commit_detached("query:8", [1], "main", fenced=False)
    await taken_over(mq, 1)
    clock.turn(3_601)
    assert await seen(mq, 1) == [b"yes"]


async def test_ids_and_where_rows_came_from_are_kept(mq: ternmq.Client, clock: TurnedClock) -> None:
    made = columns(clock, b"a", b"b", after_ms=500)
    places = np.array([0, 16, 32], "<i4").tobytes()
    made.pieces.append(Section(Column.EXPLICIT_ID, ColumnPart.OFFSETS, Type.BINARY, places))
    made.pieces.append(Section(Column.EXPLICIT_ID, ColumnPart.DATA, Type.BINARY, bytes(range(32))))
    made = replace(made, attributes=int(Attribute.MERGED))
    await stage(mq, 1, made)
    await mq.commit_detached(JOB, [1], "main", fenced=False)
    await taken_over(mq, 2)
    clock.turn(1)
    await seen(mq, 2)
    found = [message async for message in mq.read("orders")]
    assert {message.app for message in found} == {"spark"}
    ids = [id_from_text(message.id).to_bytes(16, "big") for message in found]
    assert b"".join(ids) == bytes(range(32))
    [place] = await mq.find(id=found[0].id)
    assert place.message.topic == "orders", "and not where it was staged"


async def test_a_restart_between_commit_and_taking_loses_and_doubles_nothing(
    tmp_path: Path, clock: TurnedClock
) -> None:
    """Nobody but the servers is needed once the commit is answered; they take what is left."""
    async with client(tmp_path, clock, delay_server=False) as mq:
        for number in range(5):
            name = f"query:{number}"
            await stage(mq, 1, columns(clock, b"%d" % number), name=name)
            await mq.commit_detached(name, [1], "main", fenced=False)
    for life in range(3):
        async with client(tmp_path, clock) as mq:
            await taken_over(mq, 5)
            await asyncio.sleep(0.5)
            assert await accepted(mq) == 5, f"taken once, also in life {life}"
            if life == 2:
                clock.turn(3_601)
                assert sorted(await seen(mq, 5)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_checkpoint_knows_too_how_far_it_is(tmp_path: Path, clock: TurnedClock) -> None:
    """The producers file has no copy; without it, what left the message log would come again."""
    async with client(tmp_path, clock) as mq:
        await stage(mq, 1, columns(clock, b"x", b"y"))
        await mq.commit_detached(JOB, [1], "main", fenced=False)
        await taken_over(mq, 2)
        [topic] = await mq.admin.topics("%later.")
    producer = producer_of(topic.id, "main")
    known = checkpoint.decode((tmp_path / "delay" / "checkpoint").read_bytes())
    assert known.taken == [(producer.start_ms, producer.random, 2)]
    store: Any = SimpleNamespace(
        taken={(start, random): upto for start, random, upto in known.taken},
        wal=SimpleNamespace(producers=ProducerTable()),
    )
    part: Any = None
    taker = CommittedTaker("main", cluster=part, directory=part, acceptor=part, store=store)
    assert taker.position(producer) == 2


async def test_due_times_need_a_delay_server_and_a_delay_server_needs_due_times(
    mq: ternmq.Client, clock: TurnedClock
) -> None:
    task = mq.detached(JOB, attempt=1, fenced=False)
    with pytest.raises(BadRequest):
        await task.send_columns("orders", columns(clock, b"a"))
    plain = columns(clock, b"a")
    del plain.pieces[-1]
    with pytest.raises(BadRequest):
        await task.send_columns("orders", plain, later="main")
    with pytest.raises(ternmq.BadName):
        await task.send_columns("orders", columns(clock, b"a"), later="no such/name")
    far = columns(clock, b"a", after_ms=200 * 365 * 24 * HOUR_MS)
    with pytest.raises(BadRequest, match="36525 days"):
        await task.send_columns("orders", far, later="main")


async def test_a_forgotten_delay_server_takes_its_topic_with_it(
    mq: ternmq.Client, clock: TurnedClock
) -> None:
    task = mq.detached(JOB, attempt=1, fenced=False)
    await task.send_columns("orders", columns(clock, b"a"), later="gone")
    assert [topic.name for topic in await mq.admin.topics("%later.")] == ["%later.gone"]
    await mq.admin.delays.forget("gone")
    assert await mq.admin.topics("%later.") == []


async def test_what_a_delay_server_has_to_take_is_waited_for_before_its_broker_may_go(
    mq: ternmq.Client, clock: TurnedClock
) -> None:
    await stage(mq, 1, columns(clock, b"a", b"b"))
    await mq.detached("gone:1", attempt=1, fenced=False).send_columns(
        "orders", columns(clock, b"c"), later="gone"
    )
    await mq.commit_detached(JOB, attempts=[1], fenced=False)
    await mq.commit_detached("gone:1", attempts=[1], fenced=False)
    await taken_over(mq, 2)

    async def taken() -> bool:
        return (await mq.admin.drain_progress("main")).untaken <= 1

    await until(taken)
    assert (await mq.admin.drain_progress("main")).left == 1, "nobody takes what is for 'gone'"
