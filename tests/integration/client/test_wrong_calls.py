"""Wrong calls at a real node: each is a `TernError` that says what to do, and nobody who shares the
client notices (B7, B8, B9 of the trials; J13)."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import ternmq
from ternmq.client.admin.delays import Delays
from ternmq.client.documents.documents import RegistryDocuments
from ternmq.core.errors import TernError
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox, RelaySettings
from ternmq.rpc.connection import Connection
from ternmq.testing import TurnedClock
from tests.integration.client.wrong_calls import (
    GOOD,
    WrongCall,
    edge_calls,
    wrong_calls,
    wrong_calls_of,
)
from tests.integration.processes import Node

NOT_CALLED = {
    "Client.ask_before_cancel": "for the outbox",
    "Client.config": "a property",
    "Client.sender": "for parts of ours",
    "Consumer.arrived": "for parts of ours",
    "Consumer.failed": "for parts of ours",
    "Consumer.give_back": "for parts of ours",
    "Consumer.unshown": "for parts of ours",
    "Consumer.watch": "for parts of ours",
    "Consumer.withdraw": "for parts of ours",
    "Detached.send_columns": "takes columns of the Spark sink; see below",
    "Message.held": "for the inbox",
    "Outbox.values": "for DjangoOutbox",
    "Outbox.wake": "for DjangoOutbox",
    "Outbox.send": "see below",
    "Outbox.cancel": "see below",
    "App.subscriber": "see below",
}
NOT_AT_THE_EDGE = {
    "Client.close": "the others come after it",
    "Client.consumer": "has to be entered",
    "Admin.drain": "nobody would answer after it",
}
WAITS_S = 2.0
LOOSE = {
    ("connect", "codec"): "an object with encode and decode",
    ("Client.send", "body"): "whatever a codec takes",
    ("Client.send_nowait", "body"): "whatever a codec takes",
}


@asynccontextmanager
async def kept(mq: ternmq.Client) -> AsyncIterator[None]:
    """The connections that were there before the block are there after it, and work."""
    before = await connections(mq)
    yield
    assert await connections(mq) == before, "a wrong call cost a connection"
    assert not any(each.closed for each in before)
    assert (await mq.send("orders", b"still here")).sequence >= 0


async def connections(mq: ternmq.Client) -> list[Connection]:
    await mq.admin.topics()
    return [
        await mq.cluster.broker("main").get(),
        await mq.cluster.server(mq.cluster.masters("delay")[0], "delay").get(),
        await mq.cluster._cache.connection(),
    ]


async def refused(call: Callable[[], Any]) -> str:
    """What the call is told; the text names something."""
    try:
        made = call()
        if isinstance(made, Awaitable):
            made = await made
        if hasattr(made, "__anext__") or hasattr(made, "__aiter__"):
            async for _ in made:
                break
    except TernError as error:
        assert len(error.message) > 15, error.message
        return error.message
    raise AssertionError("it was not refused")


async def not_refused(calls: Iterable[WrongCall], called: Callable[[WrongCall], Any]) -> list[str]:
    """The wrong calls that are taken, or end in anything but a `TernError`; none of none."""
    bad, count = [], 0
    for wrong in calls:
        count += 1
        try:
            await refused(partial(called, wrong))
        except AssertionError as error:
            bad.append(f"{wrong}: {error}")
        except Exception as error:
            bad.append(f"{wrong}: {type(error).__name__}: {error}")
    assert count, "there is nothing to call"
    return bad


def call_with(method: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Required ones by position, as people write them."""
    parameters = inspect.signature(method).parameters.values()
    place = [
        each.name
        for each in parameters
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.name in given
    ]
    rest = {name: value for name, value in given.items() if name not in place}
    return method(*(given[name] for name in place), **rest)


@pytest.fixture
async def mq(shared_node: Node) -> AsyncIterator[ternmq.Client]:
    async with ternmq.connect(shared_node.url, app="shop") as client:
        await client.admin.create_topic("orders")
        await client.send("orders", b"x", delay=0.001)  # The delay server is met, too.
        yield client


async def test_every_public_call_refuses_every_wrong_type_and_the_connections_are_kept(
    mq: ternmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7, B9. A new public call, argument or option is in it by itself, or the test fails."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kept(mq))
        consumer = await stack.enter_async_context(mq.consumer("orders", group="wrong"))
        message = await anext(consumer)
        monkeypatch.setitem(GOOD, "receipt", await mq.send("orders", b"x"))
        mq.transaction_checker(lambda check: "unknown")
        transaction = mq.transaction()
        detached = mq.detached("wrong")
        targets: list[tuple[type, Any]] = [
            (ternmq.Client, mq),
            (ternmq.Admin, mq.admin),
            (Delays, mq.admin.delays),
            (RegistryDocuments, mq.admin.documents),
            (ternmq.Consumer, consumer),
            (ternmq.Message, message),
            (ternmq.Transaction, transaction),
            (ternmq.Detached, detached),
            (TurnedClock, TurnedClock()),
        ]
        bad = []
        for kind, target in targets:
            calls = [each for each in wrong_calls(kind, NOT_CALLED) if not loose(each)]
            bad += await not_refused(calls, partial(call_on, target))
        assert not bad, "\n".join(bad)


async def test_values_at_the_edge_of_their_type_are_taken_or_refused_and_nothing_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, enormous, negative, not a number: a result or a `TernError`, never another error, and
    who shares the client goes on."""
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.admin.create_topic("orders")
        await mq.send("orders", b"x", delay=0.001)
        monkeypatch.setitem(GOOD, "receipt", await mq.send("orders", b"x"))
        mq.transaction_checker(lambda check: "unknown")
        bad = []
        async with kept(mq):
            for kind, target in (
                (ternmq.Client, mq),
                (ternmq.Admin, mq.admin),
                (Delays, mq.admin.delays),
                (RegistryDocuments, mq.admin.documents),
            ):
                for each in edge_calls(kind, NOT_CALLED | NOT_AT_THE_EDGE):
                    bad += await unexpected(partial(call_on, target, each), str(each)[:200])
        assert not bad, "\n".join(bad)


async def unexpected(call: Callable[[], Any], what: str) -> list[str]:
    """What a call ends in that is neither a result nor a `TernError`. Some wait, as they should."""
    try:
        async with asyncio.timeout(WAITS_S):
            made = call()
            if isinstance(made, Awaitable):
                await made
            elif hasattr(made, "__aiter__"):
                async for _ in made:
                    break
    except (TernError, TimeoutError):
        return []
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {str(error)[:200]}"]
    return []


def loose(wrong: WrongCall) -> bool:
    return (wrong.name, wrong.argument) in LOOSE


def call_on(target: Any, wrong: WrongCall) -> Any:
    return call_with(getattr(target, wrong.name.rpartition(".")[2]), wrong.given)


@pytest.mark.parametrize(
    "made",
    [
        ternmq.connect,
        ternmq.App,
        ternmq.App("tern://127.0.0.1:1").subscriber,
        ternmq.App("tern://127.0.0.1:1").broadcast,
        ternmq.outgoing,
        Outbox,
        Inbox,
    ],
    ids=lambda made: made.__name__,
)
async def test_what_is_made_with_a_wrong_type_is_refused_where_it_is_written(made: Any) -> None:
    """B9: not when the first message comes."""
    calls = [each for each in wrong_calls_of(made.__name__, made) if not loose(each)]

    bad = await not_refused(calls, lambda wrong: call_with(made, wrong.given))

    assert not bad, "\n".join(bad)


LATER = datetime(2030, 1, 1, tzinfo=UTC)
BY_HAND: list[tuple[Callable[[Any], Any], str]] = [
    # What cost the connection (B7).
    (
        lambda mq: mq.consumer("orders", group="g", tag=["a"]).start(),
        "tag is ['a']; it can be a text",
    ),
    (
        lambda mq: mq.consumer("orders", group="g", filter=5).start(),
        "filter is 5; it can be a text",
    ),
    (
        lambda mq: mq.consumer("orders", group="g", attempts_max="3").start(),
        "attempts_max is '3'; it can be a whole number",
    ),
    (lambda mq: mq.broadcast(["orders"]), "topic is ['orders']; it can be a text"),
    (lambda mq: mq.find(key=5), "key is 5; it can be a text"),
    (lambda mq: mq.admin.ledger(5), "topic is 5; it can be a text"),
    (lambda mq: mq.admin.groups(5), "topic is 5; it can be a text"),
    (lambda mq: mq.admin.topics(5), "prefix is 5; it can be a text"),
    (lambda mq: mq.admin.create_topic(123), "name is 123; it can be a text"),
    (lambda mq: mq.admin.resend_dead_letters("g", [1]), "ranges is [1]; it can be a list of pairs"),
    (
        lambda mq: mq.admin.create_topic("new", ternmq.TopicSettings(rate=cast("Any", "fast"))),
        "rate is 'fast'; it can be a whole number",
    ),
    (
        lambda mq: mq.admin.replay(ternmq.Replay(topic="orders", into="g", tag=cast("Any", 5))),
        "tag is 5; it can be a text",
    ),
    (
        lambda mq: mq.admin.replay(ternmq.Replay(topic="orders", into="g", name="n1")),
        "name is 'n1'; it is the name of an earlier replay to go on with",
    ),
    # Bare errors of Python (B9).
    (
        lambda mq: mq.read("orders", end="latest"),
        "end is 'latest'; it is an aware datetime, a sequ",
    ),
    (lambda mq: mq.read(["orders"]), "topic is ['orders']; it can be a text"),
    (lambda mq: mq.send_once("orders", [b"x"]), "rows is [b'x']; it can be a list; each is a Out"),
    (lambda mq: mq.send(123, b"x"), "123 cannot be the name of a topic"),
    (lambda mq: mq.send(["orders"], b"x"), "['orders'] cannot be the name of a topic"),
    (lambda mq: mq.send(["orders"], b"x", key="k"), "['orders'] cannot be the name of a topic"),
    (lambda mq: mq.send(["orders"], b"x", order_key="k"), "['orders'] cannot be the name of"),
    (lambda mq: mq.send(["orders"], b"x", delay=5), "['orders'] cannot be the name of a topic"),
    (lambda mq: mq.admin.create_topic("new", {}), "settings is {}; it can be a TopicSettings"),
    (
        lambda mq: mq.confirm("01M7FCD80ZA6JWJ00W00000000", "g"),
        "takes what send or send_many",
    ),
    # Values at the edges.
    (lambda mq: mq.send("orders", "text"), "a body is bytes, not str: encode it"),
    (lambda mq: mq.send("orders", ternmq.Outgoing(body=b"x")), "an Outgoing goes into a list"),
    (lambda mq: mq.send_many("orders", b"one"), "it is a list: send_many(topic, [body, …])"),
    (lambda mq: mq.send_many("orders", "one"), "it is a list: send_many(topic, [body, …])"),
    (lambda mq: mq.send_many("orders", {"a": 1}), "it is a list: send_many(topic, [body, …])"),
    (lambda mq: mq.send_many("orders", 5), "it is a list: send_many(topic, [body, …])"),
    (lambda mq: mq.send_many("orders", [b"x", None]), "message 1: a body is bytes, not NoneType"),
    (
        lambda mq: mq.send_many("orders", [ternmq.Outgoing(body=b"x")], key="k"),
        "an Outgoing has its own key, tag and so on; pass no options",
    ),
    (lambda mq: mq.send("orders", b"x", delay="5m"), "it is a number of seconds, or a timedelta"),
    (lambda mq: mq.send("orders", b"x", ttl=0), "ttl is 0; it is a number of seconds above 0"),
    (lambda mq: mq.send("orders", b"x", at=datetime(2030, 1, 1)), "which has no time zone"),
    (lambda mq: mq.send("orders", b"x", delay=5, at=LATER), "not both"),
    (lambda mq: mq.send("orders", b"x", timeout=5), "timeout= is for confirm_group="),
    (lambda mq: mq.send("or ders", b"x"), "cannot be the name of a topic"),
    (lambda mq: mq.send("orders", b"x", prio=5), "send() has no option 'prio'; did you mean"),
    (lambda mq: mq.find("orders"), "find() takes id= or key=, one of the two"),
    (lambda mq: mq.find("orders", key="k", limit=0), "limit is 0; it is at least 1"),
    (lambda mq: mq.find("orders", key="k", start=LATER.replace(tzinfo=None)), "has no time zone"),
    (lambda mq: mq.consumer([], group="g"), "it is one name or a list of different names"),
    (lambda mq: mq.consumer("orders", group=""), "cannot be the name of a group"),
    (lambda mq: mq.consumer("orders", group="g", prefetch=0), "prefetch is 0; it can be 1 to"),
    (lambda mq: mq.cancel("short"), "is not a message id: it has 26 characters"),
    (lambda mq: mq.cancel("U" * 26), "is not in its alphabet"),
    (lambda mq: mq.admin.set_group("orders", "g", attempts=3), "it is 'attempts_max' in Python"),
    (lambda mq: mq.admin.set_topic("orders", keep="1h"), "it is 'keep_ms' in Python"),
    (lambda mq: mq.admin.set_topic("orders", keep_ms="4000d"), "keeps messages for 259200000 ms"),
    (lambda mq: mq.admin.set_topic("orders", keep_ms=-1), "keep_ms is -1"),
    (lambda mq: mq.admin.set_topic("orders", rate="fast"), "or 'fast' is not a rate; write"),
    (
        lambda mq: mq.admin.seek("orders", ternmq.Start(at="time", value=cast("Any", "now"))),
        "value is 'now'",
    ),
    (lambda mq: mq.admin.delays.rows(limit=0), "limit is 0; it is at least 1"),
    # What is not there.
    (lambda mq: mq.read("nowhere"), "nowhere"),
    (lambda mq: mq.broadcast("nowhere").__aenter__(), "nowhere"),
    (lambda mq: mq.admin.topic("nowhere"), "there is no topic 'nowhere'; 'tern topic list'"),
    (lambda mq: mq.admin.reset_group("orders", "nobody", "latest"), "nobody"),
    (lambda mq: mq.send("orders", b"x", confirm_group="nobody"), "nobody"),
    (lambda mq: mq.admin.promote("nowhere"), "nowhere"),
    (lambda mq: mq.transaction(), "mq.transaction_checker(function) first"),
]


async def test_mistakes_that_were_made_are_answered_with_what_to_do(mq: ternmq.Client) -> None:
    """B7, B9, and what new users tried."""
    async with kept(mq):
        for call, said in BY_HAND:
            assert said in await refused(partial(call, mq)), said


async def test_a_call_without_what_it_needs_says_what_is_missing(mq: ternmq.Client) -> None:
    async with kept(mq):
        assert "missing a required argument: 'group'" in await refused(
            lambda: mq.admin.delete_group("orders")  # type: ignore[call-arg]
        )
        assert "halves() has no option 'topic'" in await refused(
            lambda: mq.admin.halves(topic="orders")  # type: ignore[call-arg]
        )


async def test_a_duration_is_written_the_same_way_everywhere(mq: ternmq.Client) -> None:
    """A number of seconds or a timedelta; over the limit is refused with the limit."""
    second = timedelta(seconds=1)
    url = "tern://127.0.0.1:1"
    config = ternmq.connect(
        url, delivery_timeout=second, request_timeout=second, wait=second
    ).config
    assert (config.delivery_timeout, config.request_timeout, config.wait) == (1.0, 1.0, 1.0)
    app = ternmq.App(url, drain_timeout=second)
    app.subscriber("orders", group="g", timeout=second, retry_after=second)
    app.subscriber("orders", group="g", batch=True, batch_wait=second)
    assert RelaySettings(lease=timedelta(minutes=1)).lease == 60.0  # type: ignore[arg-type]
    await mq.send("orders", b"x", delay=second, ttl=second)
    async with mq.consumer("orders", group="durations") as consumer:
        message = await anext(consumer)
        with pytest.raises(ternmq.BadRequest, match="it can be 0 to 7 days"):
            message.retry(after=timedelta(days=8))
        await message.retry(after=timedelta(days=7))
        await consumer.next_batch(wait=timedelta(milliseconds=1))
        receipt = await mq.send("orders", b"x")
        with pytest.raises(ternmq.NotConfirmed):
            await mq.confirm(receipt, "durations", timeout=timedelta(milliseconds=1))


def test_iterating_over_a_blocking_consumer_that_was_not_entered_raises(shared_node: Node) -> None:
    """B8: it waited for ever."""
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        for iterate in (iter, lambda consumer: consumer.batches()):
            with pytest.raises(ternmq.Closed, match="this consumer is not started: use it in"):
                next(iterate(mq.consumer("orders", group="g")))
        mq.send("orders", b"x")


def test_an_outbox_and_an_inbox_say_what_they_take(tmp_path: Path) -> None:
    """B9."""
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    outbox: Any = Outbox(engine)
    inbox: Any = Inbox(engine)
    settings: Any = RelaySettings
    outbox.create_tables()
    inbox.create_tables()
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: outbox.send("orders", "orders", b"x"), "takes a Session or an AsyncSession"),
        (lambda: outbox.send(engine, "orders", b"x"), "takes a Session or an AsyncSession"),
        (lambda: outbox.send(Session(engine), 5, b"x"), "5 cannot be the name of a topic"),
        (lambda: outbox.send(Session(engine), "orders", "x"), "a body is bytes, not str"),
        (lambda: outbox.flush("soon"), "timeout is 'soon'; it is a number of seconds"),
        (outbox.start, "this outbox has no client to send with"),
        (lambda: inbox.forget("30d"), "older_than is '30d'; it is a number of seconds"),
        (lambda: inbox.guard(lambda: None, "g"), "is called with (message, session)"),
        (lambda: inbox.guard(5, "g"), "a handler is a function, not 5"),
        (lambda: settings(poll="1s"), "poll is '1s'; it is a number of seconds"),
        (lambda: settings(rows_max=0), "rows_max is 0; it is a whole number"),
    ]
    for call, said in wrong:
        with pytest.raises(ternmq.TernError) as caught:
            call()
        assert said in caught.value.message
    inbox.forget(timedelta(days=1))


def test_a_handler_that_cannot_be_called_is_refused_at_its_decorator() -> None:
    app = ternmq.App("tern://127.0.0.1:1")

    def nothing() -> None: ...

    with pytest.raises(ternmq.BadRequest, match="a handler is called with \\(message\\)"):
        app.subscriber("orders", group="g")(nothing)
    with pytest.raises(ternmq.BadRequest, match="a handler is a function of a message, not 5"):
        app.subscriber("orders", group="g")(5)  # type: ignore[type-var]


async def test_options_of_a_list_apply_to_the_messages_that_bring_none(mq: ternmq.Client) -> None:
    """B10: as the page says; also where some are for later."""
    rows = [ternmq.Outgoing(body=b"own", key="a"), b"bare"]
    await mq.send_many("mixed", rows, key="k")
    receipts = await mq.send_many("mixed", [ternmq.Outgoing(body=b"now"), b"later"], delay=3600)

    found = [(one.body, one.key) async for one in mq.read("mixed")]
    assert found == [(b"own", "a"), (b"bare", "k"), (b"now", None)]
    assert receipts[0].due_at is None
    assert await mq.cancel(receipts[1]) is ternmq.CancelResult.CANCELLED
