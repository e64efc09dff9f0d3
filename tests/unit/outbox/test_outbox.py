"""`Outbox`: what is sent is what was committed, nothing else (Q9)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from ternmq.core.errors import BadName, BadRequest, Unavailable
from ternmq.outbox import Outbox, RelaySettings
from ternmq.testing import TurnedClock
from tests.unit.outbox.fake_client import FakeMq
from tests.waiting import wait_until


@pytest.fixture
def outbox(engine: Engine, mq: FakeMq) -> Outbox:
    made = Outbox(engine, mq)
    made.create_tables()
    return made


def rows(outbox: Outbox, engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(outbox.table).order_by(outbox.table.c.id)))


def test_a_committed_message_is_sent_at_once_and_its_row_is_gone(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    """Q9."""
    with Session(engine) as session, session.begin():
        id = outbox.send(
            session,
            "order.paid",
            b"12",
            key="o-1",
            tag="vip",
            properties={"amount": 12},
            order_key="k",
            ttl=timedelta(hours=1),
            priority=3,
        )
    outbox.flush()

    (group, topic, row), *more = mq.stored
    assert (group, topic, len(more)) == ("main", "order.paid", 0)
    assert (row.body, row.key, row.tag, row.order_key) == (b"12", "o-1", "vip", "k")
    assert (row.properties, row.priority) == ({"amount": 12}, 3)
    assert row.expire_at_ms == row.born_at_ms + 3_600_000
    assert len(id) == 26
    assert rows(outbox, engine) == []


def test_a_message_in_the_transaction_of_a_connection_is_found_after_its_commit(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    """Q9: without a session; nobody hears of the commit, the sweeper looks."""
    with engine.connect() as connection:
        with connection.begin():
            outbox.send(connection, "order.paid", b"kept", order_key="k")
        with connection.begin() as transaction:
            outbox.send(connection, "order.paid", b"gone")
            transaction.rollback()
    mq.submit(lambda mq: outbox.relay.sweep_once(mq, outbox.relay.databases[0])).result()
    assert [row.body for _, _, row in mq.stored] == [b"kept"]
    assert rows(outbox, engine) == []


async def test_a_message_in_the_transaction_of_an_async_connection(
    tmp_path: Path, mq: FakeMq
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'async.db'}")
    outbox = Outbox(engine, mq)
    await outbox.create_tables()
    async with engine.begin() as connection:
        await outbox.send(connection, "order.paid", b"kept")
    await outbox.relay.sweep_once(mq, outbox.relay.databases[0])
    assert [row.body for _, _, row in mq.stored] == [b"kept"]
    await engine.dispose()


def test_a_rolled_back_message_never_existed(outbox: Outbox, engine: Engine, mq: FakeMq) -> None:
    with Session(engine) as session:
        outbox.send(session, "t", b"gone")
        session.rollback()
        outbox.send(session, "t", b"kept")
        session.commit()
    outbox.flush()

    assert mq.bodies == [b"kept"]


def test_a_savepoint_decides_for_its_own_messages(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    with Session(engine) as session, session.begin():
        outbox.send(session, "t", b"outer")
        with session.begin_nested():
            outbox.send(session, "t", b"inner")
        outbox.flush()
        assert mq.bodies == []  # Released is not committed.
        lost = session.begin_nested()
        outbox.send(session, "t", b"lost")
        lost.rollback()
    outbox.flush()

    assert mq.bodies == [b"outer", b"inner"]


def test_a_session_inside_an_outer_transaction_sends_nothing_early(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="rollback_only") as session:
            outbox.send(session, "t", b"gone")
            session.commit()
        outbox.flush()
        outer.rollback()

    assert mq.bodies == []
    assert rows(outbox, engine) == []


async def test_async_sessions_send_too(tmp_path: Path, mq: FakeMq) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    outbox = Outbox(engine, mq)
    await outbox.create_tables()
    # The engine belongs to one loop, so its relay has to run on this one.
    mq.submit = lambda job: asyncio.ensure_future(job(mq))  # type: ignore[method-assign]
    async with AsyncSession(engine) as session:
        async with session.begin():
            await outbox.send(session, "t", b"kept")
        await outbox.send(session, "t", b"gone")
        await session.rollback()
    await outbox.aflush()

    assert mq.bodies == [b"kept"]
    await engine.dispose()


def test_a_broker_that_is_away_costs_time_and_nothing_else(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    away = True
    mq.refuse = lambda group, row: Unavailable("away") if away else None
    with Session(engine) as session, session.begin():
        outbox.send(session, "t", b"1")
    outbox.flush()
    (row,) = rows(outbox, engine)
    assert (row.claimed_by, row.attempts) == (None, 0)
    assert "away" in row.error

    away = False
    with outbox:
        wait_until(lambda: mq.bodies == [b"1"])
        wait_until(lambda: rows(outbox, engine) == [])


def test_an_application_may_end_while_no_broker_answers(
    outbox: Outbox, engine: Engine, mq: FakeMq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are safe: leaving the block neither raises nor leaves a sweeper behind."""
    monkeypatch.setattr("ternmq.outbox.outbox.STOP_S", 0.05)
    silent = asyncio.Event()

    async def never(*args: Any) -> list[Any]:
        await silent.wait()
        raise Unavailable("away")

    monkeypatch.setattr(mq, "send_once", never)
    with outbox, Session(engine) as session, session.begin():
        outbox.send(session, "t", b"1")
    assert [row.topic for row in rows(outbox, engine)] == ["t"]
    with pytest.raises(Unavailable, match="still being sent"):
        outbox.flush(0.01)
    mq.loop.call_soon_threadsafe(silent.set)
    outbox.flush()


async def test_what_would_block_the_loop_that_sends_is_refused(engine: Engine, mq: FakeMq) -> None:
    Outbox(engine, mq).flush()  # A client with a loop of its own may.
    mq.submit = lambda job: asyncio.ensure_future(job(mq))  # type: ignore[method-assign]
    outbox = Outbox(engine, mq)
    await asyncio.sleep(0)
    with pytest.raises(BadRequest, match="async with outbox"), outbox:
        pass
    with pytest.raises(BadRequest, match="aflush"):
        outbox.flush()
    await outbox.aflush()


def test_an_application_that_dies_leaves_its_rows_to_another(
    engine: Engine, outbox: Outbox, mq: FakeMq
) -> None:
    """The first process commits and is gone: nobody wakes its relay."""
    dead = Outbox(engine)
    with Session(engine) as session, session.begin():
        dead.send(session, "t", b"left")

    with outbox:
        wait_until(lambda: mq.bodies == [b"left"])
        wait_until(lambda: rows(outbox, engine) == [])


def test_a_message_that_can_never_be_stored_is_parked_and_hurts_nobody(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    mq.refuse = lambda group, row: BadRequest("no") if row.body == b"bad" else None
    with Session(engine) as session, session.begin():
        for body in (b"a", b"b", b"bad", b"c", b"d"):
            outbox.send(session, "t", body)
    outbox.flush()

    (row,) = rows(outbox, engine)
    assert (row.ready_ms, row.attempts, row.error) == (2**63 - 1, 1, "bad_request: no")
    assert mq.bodies == [b"a", b"b", b"c", b"d"]
    assert outbox.counts.parked == 1


def test_nothing_overtakes_a_message_of_its_order_key(
    outbox: Outbox, engine: Engine, mq: FakeMq
) -> None:
    """D8: the key of a parked row waits, others go on; after the repair the order is kept."""
    bad = {b"x1"}
    mq.refuse = lambda group, row: BadRequest("no") if row.body in bad else None
    with Session(engine) as session, session.begin():
        for key, body in (("x", b"x1"), ("y", b"y1"), ("x", b"x2")):
            outbox.send(session, "t", body, order_key=key)
    outbox.flush()
    with Session(engine) as session, session.begin():
        outbox.send(session, "t", b"x3", order_key="x")
        outbox.send(session, "t", b"y2", order_key="y")
    outbox.flush()
    assert mq.bodies == [b"y1", b"y2"]

    bad.clear()
    with engine.begin() as connection:  # As `tern outbox retry` does.
        connection.execute(text("UPDATE tern_outbox SET ready_ms = 1, claimed_by = NULL"))
    with outbox:
        wait_until(lambda: rows(outbox, engine) == [])
    assert mq.bodies == [b"y1", b"y2", b"x1", b"x2", b"x3"]


def test_a_row_keeps_its_broker_group(engine: Engine, outbox: Outbox, mq: FakeMq) -> None:
    """A row that may have reached one group is never sent to another."""
    mq.groups = ["b", "a"]
    mq.refuse = lambda group, row: Unavailable("away") if group == "a" else None
    with Session(engine) as session, session.begin():
        for number in range(8):
            outbox.send(session, "t", b"%d" % number)
    outbox.flush()
    before = {row.message_id: row.broker_group for row in rows(outbox, engine)}
    assert set(before.values()) <= {"a", "main"}

    mq.groups = ["b"]
    mq.submit(lambda mq: outbox.relay.sweep_once(mq, outbox.relay.databases[0])).result()
    assert {row.message_id: row.broker_group for row in rows(outbox, engine)} == before


def test_sharded_databases_are_several_engines(tmp_path: Path, mq: FakeMq) -> None:
    engines = [create_engine(f"sqlite:///{tmp_path / name}.db") for name in ("one", "two")]
    outbox = Outbox(engines, mq, table="messages_out")
    outbox.create_tables()
    for number, engine in enumerate(engines):
        with Session(engine) as session, session.begin():
            outbox.send(session, "t", b"%d" % number)
    outbox.flush()

    assert sorted(mq.bodies) == [b"0", b"1"]
    other = create_engine(f"sqlite:///{tmp_path / 'three.db'}")
    with Session(other) as session, pytest.raises(BadRequest, match="none of the outbox's engines"):
        outbox.send(session, "t", b"2")
    for engine in (*engines, other):
        engine.dispose()


def test_a_message_for_later_waits_in_the_table(engine: Engine, mq: FakeMq) -> None:
    clock = TurnedClock()
    outbox = Outbox(engine, mq, clock=clock)
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        outbox.send(session, "t", b"later", delay=60, order_key="k")
        outbox.send(session, "t", b"now", order_key="k")
    outbox.flush()
    assert mq.bodies == [b"now"]

    clock.turn(59)
    database = outbox.relay.databases[0]
    mq.submit(lambda mq: outbox.relay.sweep_once(mq, database)).result()
    assert mq.bodies == [b"now"]
    clock.turn(1)
    mq.submit(lambda mq: outbox.relay.sweep_once(mq, database)).result()
    assert mq.bodies == [b"now", b"later"]
    assert rows(outbox, engine) == []


def test_mistakes_are_said_where_they_are_made(outbox: Outbox, engine: Engine) -> None:
    with Session(engine) as session:
        with pytest.raises(BadName):
            outbox.send(session, "a topic", b"")
        with pytest.raises(BadRequest, match="a body is bytes"):
            outbox.send(session, "t", {"no": "codec"})
        with pytest.raises(BadRequest, match="has no option 'kex'"):
            outbox.send(session, "t", b"", kex="o-1")  # type: ignore[call-overload]
    with Session(engine) as session, pytest.raises(BadRequest, match=r"create_tables\(\)"):
        Outbox(engine, table="missing").send(session, "t", b"")
    with pytest.raises(BadRequest, match="takes a Session"):
        outbox.send(engine, "t", b"")  # type: ignore[call-overload]
    for wrong in ("sqlite://", None, [], [engine, "sqlite://"]):
        with pytest.raises(BadRequest, match="takes an engine"):
            Outbox(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="a connected client"):
        Outbox(engine, "tern://localhost")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="no client"):
        Outbox(engine).start()


def test_a_broker_group_that_is_away_is_tried_at_the_times_of_its_back_off(
    engine: Engine, mq: FakeMq
) -> None:
    """A backlog of rows without a group neither hammers it nor makes its rest longer; Q9."""
    clock = TurnedClock()
    away = True
    mq.refuse = lambda group, row: Unavailable("away") if away else None
    outbox = Outbox(engine, mq, clock=clock, settings=RelaySettings(rows_max=10))
    outbox.create_tables()
    dead = Outbox(engine, clock=clock)
    with Session(engine) as session, session.begin():
        for number in range(30):
            dead.send(session, "t", b"%d" % number, order_key="k" if number % 2 else None)

    def sweep() -> int:
        for _ in range(5):
            mq.submit(lambda mq: outbox.relay.sweep_once(mq, outbox.relay.databases[0])).result()
        return len(mq.calls)

    assert sweep() == 1
    for tries, seconds in ((2, 0.5), (3, 1.0), (4, 2.0), (5, 4.0)):
        clock.turn(seconds - 0.01)
        assert sweep() == tries - 1
        clock.turn(0.01)
        assert sweep() == tries
    away = False
    clock.turn(8)
    sweep()
    clock.turn(1)  # For those that waited behind others.
    sweep()
    assert sorted(mq.bodies, key=int) == [b"%d" % number for number in range(30)]
    assert [one for one in mq.bodies if int(one) % 2] == [b"%d" % one for one in range(1, 30, 2)]


def test_two_lines_of_rounds_do_not_take_rows_that_wait_for_each_other(
    engine: Engine, mq: FakeMq
) -> None:
    """A backlog with order keys goes out in full rounds; nothing is claimed and given back; Q9."""
    outbox = Outbox(engine, mq, settings=RelaySettings(rows_max=20, poll=0.01))
    outbox.create_tables()
    dead = Outbox(engine, clock=TurnedClock(now_ms=0))
    with Session(engine) as session, session.begin():
        for number in range(400):
            dead.send(session, "t", b"%d" % number, order_key=f"k{number % 20}")
    back: list[int] = []
    put_back = outbox.relay.rows.put_back

    def counted(connection: Connection, ids: Sequence[int], *, owner: str, now_ms: int) -> None:
        back.extend(ids)
        put_back(connection, ids, owner=owner, now_ms=now_ms)

    outbox.relay.rows.put_back = counted  # type: ignore[method-assign]
    relaying = mq.submit(outbox.relay.run)
    wait_until(lambda: outbox.counts.sent == 400)
    relaying.cancel()

    assert back == []
    for key in range(20):
        of_key = [int(body) for body in mq.bodies if int(body) % 20 == key]
        assert of_key == list(range(key, 400, 20))


def test_a_row_that_is_due_later_than_those_behind_it_goes_first_at_once(
    engine: Engine, mq: FakeMq
) -> None:
    """Rows are taken by the time they are due: more than a round of them may come before it."""
    clock = TurnedClock()
    outbox = Outbox(engine, mq, clock=clock, settings=RelaySettings(rows_max=5))
    outbox.create_tables()
    dead = Outbox(engine, clock=clock)
    with Session(engine) as session, session.begin():
        for number in range(20):
            dead.send(session, "t", b"%d" % number, order_key="k")
    clock.turn(60)
    with engine.begin() as connection:
        late = update(outbox.table).where(outbox.table.c.id == 1)
        connection.execute(late.values(ready_ms=clock.now_ms()))

    mq.submit(lambda mq: outbox.relay.sweep_once(mq, outbox.relay.databases[0])).result()

    assert mq.bodies == [b"%d" % number for number in range(6)]


def test_what_is_tried_while_a_broker_group_rests_does_not_make_its_rest_longer(
    engine: Engine, mq: FakeMq
) -> None:
    clock = TurnedClock()
    mq.refuse = lambda group, row: Unavailable("away")
    outbox = Outbox(engine, mq, clock=clock)
    outbox.create_tables()
    for number in range(8):
        with Session(engine) as session, session.begin():
            outbox.send(session, "t", b"%d" % number)
        outbox.flush()

    mq.refuse = lambda group, row: None
    clock.turn(0.5)
    mq.submit(lambda mq: outbox.relay.sweep_once(mq, outbox.relay.databases[0])).result()
    assert len(mq.bodies) == 8


def test_an_order_key_keeps_its_broker_group_while_that_rests(engine: Engine, mq: FakeMq) -> None:
    """Elsewhere it would overtake what its group has stored."""
    mq.groups = ["a", "b"]
    mq.refuse = lambda group, row: Unavailable("away") if group == "a" else None
    outbox = Outbox(engine, mq, clock=TurnedClock())
    outbox.create_tables()
    for _ in range(3):
        with Session(engine) as session, session.begin():
            for number in range(8):
                outbox.send(session, "t", b"%d" % number, order_key=str(number))
        outbox.flush()

    kept = [row.broker_group for row in rows(outbox, engine)]
    assert len(kept) + len(mq.stored) == 24
    assert 0 < len(kept) < 24
    assert set(kept) == {"a"}
    assert {group for group, _, _ in mq.stored} == {"b"}
    assert all(mq.bodies.count(body) == 3 for body in mq.bodies)


def test_a_round_is_bounded(engine: Engine, mq: FakeMq) -> None:
    outbox = Outbox(engine, mq, settings=RelaySettings(rows_max=10))
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        for number in range(35):
            outbox.send(session, "t", b"%d" % number)
    outbox.flush()

    assert mq.calls == [("main", "t", 10)] * 3 + [("main", "t", 5)]
    assert mq.bodies == [b"%d" % number for number in range(35)]
