"""`Inbox`: the handler's work and the record of it are one (Q16)."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from ternmq.core.errors import BadRequest
from ternmq.inbox import Inbox
from ternmq.testing import TurnedClock


class FakeMessage:
    """As much of a message as an inbox looks at."""

    def __init__(self, id: str, key: str = "") -> None:
        self.id = id
        self.key = key
        self.again_after: float | None = None
        self.given_back = False

    def held(self) -> "FakeMessage":
        return self

    def retry(self, after: float, reason: str) -> None:
        self.again_after = after
        self.given_back = True


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE effects (id TEXT)"))
    yield made
    made.dispose()


def effects(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT id FROM effects ORDER BY rowid")).scalars())


def work(message: Any, session: Any) -> None:
    session.execute(text("INSERT INTO effects VALUES (:id)"), {"id": message.id})


def message(id: str, key: str = "") -> Any:
    return FakeMessage(id, key)


def test_a_message_that_comes_again_takes_effect_once_per_group(engine: Engine) -> None:
    inbox = Inbox(engine)
    inbox.create_tables()
    billing, mails = inbox.guard(work, "billing"), inbox.guard(work, "Billing")

    for handler in (billing, billing, mails, billing, mails):
        handler(message("m1"))

    assert effects(engine) == ["m1", "m1"]  # Groups differ by case, as names do.


def test_a_handler_that_fails_leaves_neither_effect_nor_record(engine: Engine) -> None:
    inbox = Inbox(engine)
    inbox.create_tables()
    failing = True

    def handler(message: Any, session: Any) -> None:
        work(message, session)
        if failing:
            raise ValueError("half way")

    guarded = inbox.guard(handler, "g")
    with pytest.raises(ValueError, match="half way"):
        guarded(message("m1"))
    assert effects(engine) == []

    failing = False
    guarded(message("m1"))
    guarded(message("m1"))
    assert effects(engine) == ["m1"]


async def test_async_handlers_get_an_async_session(engine: Engine, tmp_path: Path) -> None:
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
    inbox = Inbox(async_engine, table="seen")
    await inbox.create_tables()

    async def handler(message: Any, session: Any) -> None:
        await session.execute(text("INSERT INTO effects VALUES (:id)"), {"id": message.id})

    guarded = inbox.guard(handler, "g")
    for id in ("a", "b", "a"):
        await guarded(message(id))
    assert effects(engine) == ["a", "b"]
    assert await inbox.forget(older_than=-1) == 2
    await async_engine.dispose()


def test_the_key_may_be_the_application_s_own(engine: Engine) -> None:
    inbox = Inbox(engine, key=lambda message: f"{message.key}")
    inbox.create_tables()
    guarded = inbox.guard(work, "g")

    for id, key in (
        ("1", "order-1"),
        ("2", "order-1"),
        ("3", "Order-1"),
        ("4", "x" * 5_000),
        ("5", "\0"),
    ):
        guarded(message(id, key))

    assert effects(engine) == ["1", "3", "4", "5"]


def test_of_two_workers_with_one_message_one_works_and_one_waits(engine: Engine) -> None:
    inbox = Inbox(engine)
    inbox.create_tables()
    inside, go_on = threading.Event(), threading.Event()

    def slow(message: Any, session: Any) -> None:
        work(message, session)
        inside.set()
        assert go_on.wait(20)

    first = threading.Thread(target=inbox.guard(slow, "g"), args=[message("m1")])
    second = threading.Thread(target=inbox.guard(work, "g"), args=[message("m1")])
    first.start()
    assert inside.wait(20)
    second.start()
    go_on.set()
    first.join()
    second.join()

    assert effects(engine) == ["m1"]


def test_the_plain_mode_keeps_others_away_until_the_worker_counts_as_dead(engine: Engine) -> None:
    clock = TurnedClock()
    inbox = Inbox(engine, session=False, working=60, clock=clock)
    inbox.create_tables()
    done: list[str] = []

    class Crash(BaseException):
        """The process ends: not even the clean-up runs."""

    def crash(_: Any) -> None:
        inbox._records.give_up = lambda *_, **__: None  # type: ignore[method-assign]
        raise Crash

    with pytest.raises(Crash):
        inbox.guard(crash, "g")(message("m1"))
    handler = inbox.guard(lambda message: done.append(message.id), "g")
    clock.turn(20)
    early = message("m1")
    handler(early)
    assert (done, early.again_after) == ([], 40.0)  # Not sooner: each try counts as an attempt.
    clock.turn(41)
    handler(message("m1"))
    handler(message("m1"))

    assert done == ["m1"]


def test_in_the_plain_mode_a_failure_is_forgotten(engine: Engine) -> None:
    inbox = Inbox(engine, session=False)
    inbox.create_tables()
    calls: list[str] = []

    def handler(message: Any) -> None:
        calls.append(message.id)
        if len(calls) == 1:
            raise ValueError

    guarded = inbox.guard(handler, "g")
    with pytest.raises(ValueError):
        guarded(message("m1"))
    guarded(message("m1"))
    guarded(message("m1"))
    assert calls == ["m1", "m1"]


def test_old_records_are_forgotten_in_steps(engine: Engine) -> None:
    clock = TurnedClock()
    inbox = Inbox(engine, clock=clock)
    inbox.create_tables()
    guarded = inbox.guard(lambda message, session: None, "g")
    for number in range(20):
        guarded(message(str(number)))
        clock.turn(1)

    assert inbox.forget(older_than=10.5).result == 10  # type: ignore[attr-defined]
    assert inbox.forget(older_than=0).result == 10  # type: ignore[attr-defined]


def test_a_handler_that_does_not_fit_the_engine_is_refused(engine: Engine) -> None:
    async def handler(message: Any, session: Any) -> None: ...

    with pytest.raises(BadRequest, match="async engine"):
        Inbox(engine).guard(handler, "g")


def test_mistakes_are_said(engine: Engine) -> None:
    with pytest.raises(BadRequest, match=r"'missing'.*create_tables\(\)"):
        Inbox(engine, table="missing").guard(work, "g")(message("m1"))
    with pytest.raises(BadRequest, match=r"called with \(message, session\)"):
        Inbox(engine).guard(lambda message: None, "g")
    with pytest.raises(BadRequest, match=r"called with \(message\)"):
        Inbox(engine, session=False).guard(work, "g")
    assert Inbox(engine).guard(work, "g").__name__ == "work"
    with pytest.raises(BadRequest, match="takes an engine"):
        Inbox("sqlite://")  # type: ignore[arg-type]
