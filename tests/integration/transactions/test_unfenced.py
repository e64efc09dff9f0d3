"""Detached transactions whose attempts stand side by side, as Spark's sink uses them (P2, R11)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ternmq
from ternmq import TransactionEnded
from ternmq.batch.encoder import Columns, Section
from ternmq.batch.layout import Column, ColumnPart, Type
from ternmq.storage.messages.transactions import TransactionTable
from ternmq.testing import node

JOB = "query:7"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with node(data_dir=tmp_path) as address:
        yield address


@pytest.fixture
async def mq(url: str) -> AsyncIterator[ternmq.Client]:
    async with ternmq.connect(url, app="spark") as client:
        yield client


def columns(*bodies: bytes) -> Columns:
    places = b"".join(sum(map(len, bodies[:n])).to_bytes(4, "little") for n in range(len(bodies)))
    data = b"".join(bodies)
    pieces = [
        Section(
            Column.BODY, ColumnPart.OFFSETS, Type.BINARY, places + len(data).to_bytes(4, "little")
        ),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, data),
    ]
    return Columns(pieces, len(bodies), len(data), 1_000)


async def stage(mq: ternmq.Client, attempt: int, *bodies: bytes, name: str = JOB) -> bool:
    task = mq.detached(name, attempt=attempt, fenced=False)
    return (await task.send_columns("orders", columns(*bodies))).committed


async def bodies(mq: ternmq.Client) -> list[bytes]:
    if "orders" not in [known.name for known in await mq.admin.topics()]:
        return []
    return [message.body async for message in mq.read("orders")]


async def test_exactly_the_named_attempts_are_published_in_their_order(mq: ternmq.Client) -> None:
    for attempt in (9, 2, 5):
        assert not await stage(mq, attempt, b"%d" % attempt, b"x")
    done = await mq.commit_detached(JOB, [9, 2], fenced=False)
    assert (done.state, done.attempts, done.repeated) == ("committed", [9, 2], False)
    assert await bodies(mq) == [b"9", b"x", b"2", b"x"]
    assert (await mq.admin.halves()).total == 0, "the one that did not count is rolled back"


async def test_a_name_is_decided_once_and_later_ones_are_told_how(mq: ternmq.Client) -> None:
    """A micro-batch that is run again after its commit writes nothing."""
    await stage(mq, 1, b"first")
    await stage(mq, 2, b"second")
    assert (await mq.look_detached(JOB)).state == "open"
    await mq.commit_detached(JOB, [1], fenced=False)
    assert await stage(mq, 3, b"again"), "nothing is stored under a committed name"
    again = await mq.commit_detached(JOB, [3], fenced=False)
    assert (again.state, again.attempts, again.repeated) == ("committed", [1], True)
    aborted = await mq.abort_detached(JOB, [1, 2, 3], fenced=False)
    assert (aborted.state, aborted.attempts) == ("committed", [1])
    assert (await mq.look_detached(JOB)).attempts == [1]
    assert await bodies(mq) == [b"first"]


async def test_of_two_drivers_that_commit_at_once_one_wins(mq: ternmq.Client) -> None:
    for run in range(20):
        name = f"query:{run}"
        await stage(mq, 1, b"a", name=name)
        await stage(mq, 2, b"b", name=name)
        calls = [mq.commit_detached(name, [attempt], fenced=False) for attempt in (1, 2)]
        one, other = await asyncio.gather(*calls)
        assert one.attempts == other.attempts
        assert len(await bodies(mq)) == run + 1


async def test_an_abort_touches_what_it_names_and_a_late_commit_is_refused(
    mq: ternmq.Client,
) -> None:
    for attempt in (1, 2):
        await stage(mq, attempt, b"%d" % attempt)
    await mq.abort_detached(JOB, [1], fenced=False, elsewhere=[7])
    for attempts, elsewhere in (([1, 2], []), ([2], [7])):
        with pytest.raises(TransactionEnded, match="gone"):
            await mq.commit_detached(JOB, attempts, fenced=False, elsewhere=elsewhere)
    with pytest.raises(TransactionEnded):
        await stage(mq, 1, b"late")
    with pytest.raises(ternmq.TransactionNotFound):
        await mq.commit_detached(JOB, [2, 3], fenced=False)
    with pytest.raises(ternmq.BadRequest, match="which attempts"):
        await mq.commit_detached(JOB, fenced=False)
    await mq.commit_detached(JOB, [2], fenced=False)
    assert await bodies(mq) == [b"2"]
    for attempt in (1, 2):
        await stage(mq, attempt, b"no", name="query:8")
    await mq.abort_detached("query:8", fenced=False)
    assert (await mq.admin.halves()).total == 0, "none named: all that are open"


async def test_attempts_elsewhere_are_remembered_with_the_outcome(
    tmp_path: Path,
) -> None:
    """So somebody else can finish the commit on other broker groups, also after a restart."""
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="spark") as mq:
        await stage(mq, 1, b"here")
        await mq.commit_detached(JOB, [1], fenced=False, elsewhere=[8, 9])
        await mq.commit_detached("query:8", [], fenced=False, elsewhere=[4])
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="spark") as mq:
        assert (await mq.look_detached(JOB)).attempts == [1, 8, 9]
        assert (await mq.look_detached("query:8")).attempts == [4]
        assert await stage(mq, 5, b"again")
        assert await stage(mq, 5, b"again", name="query:8")
        await stage(mq, 5, b"new", name="query:9")
        await mq.commit_detached("query:9", [5], fenced=False)
        assert await bodies(mq) == [b"here", b"new"]


async def test_batches_that_overtook_each_other_come_out_in_order(mq: ternmq.Client) -> None:
    task = mq.detached(JOB, attempt=1, fenced=False)
    sends = [task.send_columns("orders", columns(b"%d" % n)) for n in range(50)]
    await asyncio.gather(*sends)
    await mq.commit_detached(JOB, [1], fenced=False)
    assert await bodies(mq) == [b"%d" % n for n in range(50)]
    assert task.rows == 50


async def test_an_attempt_is_one_producers_and_people_cannot_commit_all(
    mq: ternmq.Client, url: str
) -> None:
    await stage(mq, 1, b"mine")
    async with ternmq.connect(url, app="spark") as other:
        with pytest.raises(ternmq.Fenced, match="another"):
            await stage(other, 1, b"theirs")
    with pytest.raises(ternmq.BadRequest, match="only its writer"):
        await mq.commit_detached(JOB)
    await mq.abort_detached(JOB)
    assert (await mq.admin.halves()).total == 0


async def test_an_ended_name_takes_one_outcome_however_many_attempts_it_had(
    mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[TransactionTable] = []
    decide = TransactionTable.decide

    def watched(table: TransactionTable, *given: object, **named: object) -> None:
        tables.append(table)
        decide(table, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TransactionTable, "decide", watched)
    for attempt in range(20):
        await stage(mq, attempt, b"x")
    await mq.commit_detached(JOB, list(range(20)), fenced=False)
    [outcome] = tables[0].outcomes.values()
    assert (outcome.attempts, outcome.placed) == (list(range(20)), [])
    assert tables[0]._names == {JOB: {0}}
