"""What handlers are called with, by the annotations of their parameters."""

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

import ternmq
from ternmq import App, Depends, Message, MessageBatch

URL = "tern://127.0.0.1:1"


class Order(msgspec.Struct):
    number: int
    item: str = "tea"


class Invoice(pydantic.BaseModel):
    number: int
    total: float


@dataclasses.dataclass
class Parcel:
    weight: float


async def test_an_annotation_decides_how_the_body_is_read() -> None:
    app = App(URL)
    seen: list[Any] = []

    @app.subscriber("orders", group="structs")
    async def by_struct(order: Order) -> None:
        seen.append(order)

    @app.subscriber("orders", group="models")
    def by_model(invoice: Invoice) -> None:
        seen.append(invoice)

    @app.subscriber("orders", group="dataclasses")
    async def by_dataclass(parcel: Parcel, message: Message) -> None:
        seen.append((parcel, message.key))

    @app.subscriber("orders", group="models-in-lists")
    async def by_list(invoices: list[Invoice]) -> None:
        seen.append(invoices)

    @app.subscriber("orders", group="texts")
    async def by_text(text: str) -> None:
        seen.append(text)

    @app.subscriber("orders", group="bytes")
    async def by_bytes(body: bytes) -> None:
        seen.append(body)

    for group, value in [
        ("structs", {"number": 1}),
        ("models", Invoice(number=2, total=0.5)),
        ("models-in-lists", [{"number": 3, "total": 1}]),
        ("texts", "grün"),
        ("bytes", b"\xff"),
    ]:
        assert (await app.deliver(value, group=group)).verdict == "ack"
    delivered = await app.deliver({"weight": 2}, group="dataclasses", key="p-1")

    assert delivered.verdict == "ack"
    assert seen == [
        Order(1),
        Invoice(number=2, total=0.5),
        [Invoice(number=3, total=1)],
        "grün",
        b"\xff",
        (Parcel(2.0), "p-1"),
    ]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_typed_bodies_are_read_by_the_codec_of_the_client(codec: Any) -> None:
    app = App(URL, codec=codec)
    seen: list[Any] = []

    @app.subscriber("orders", group="structs")
    async def by_struct(order: Order) -> None:
        seen.append(order)

    @app.subscriber("orders", group="models")
    async def by_model(invoice: Invoice) -> None:
        seen.append(invoice)

    await app.deliver(Order(1, "milk"), group="structs")
    await app.deliver(Invoice(number=2, total=3), group="models")

    assert seen == [Order(1, "milk"), Invoice(number=2, total=3)]


async def test_an_own_codec_reads_first_and_its_value_is_made_to_fit() -> None:
    class Shifted:
        def encode(self, value: Any, /) -> bytes:
            return b"x" + msgspec.json.encode(value)

        def decode(self, body: bytes, /) -> Any:
            return msgspec.json.decode(body[1:])

    app = App(URL, codec=Shifted())
    seen: list[Order] = []

    @app.subscriber("orders", group="billing")
    async def bill(order: Order) -> None:
        seen.append(order)

    await app.deliver({"number": 4}, topic="orders")

    assert seen == [Order(4)]


async def test_a_body_that_does_not_fit_is_rejected_at_once_and_says_where() -> None:
    app = App(URL)
    calls = 0

    @app.subscriber("orders", group="billing", local_retries=3)
    async def bill(order: Order) -> None:
        nonlocal calls
        calls += 1

    delivered = await app.deliver({"number": "seven"})

    assert delivered.verdict == "reject"
    assert isinstance(delivered.error, ternmq.DecodeError)
    assert "$.number" in delivered.reason
    assert calls == 0


async def test_in_a_batch_only_what_cannot_be_read_is_rejected() -> None:
    app = App(URL)
    seen: list[list[Order]] = []
    verdicts: list[bool] = []

    @app.subscriber("orders", group="billing", batch=True)
    async def bill(orders: list[Order], batch: MessageBatch) -> None:
        seen.append(orders)
        verdicts.extend(message.settled for message in batch)

    delivered = await app.deliver([{"number": 1}, {"no": 2}, {"number": 3}])
    nothing = await app.deliver([{"no": 2}])

    assert seen == [[Order(1), Order(3)]]
    assert verdicts == [False, True, False]
    assert delivered.verdict == nothing.verdict == "reject"  # Of the second row.


async def test_dependencies_are_made_once_per_message_and_ended_after_the_handler() -> None:
    events: list[str] = []

    async def connection() -> AsyncIterator[str]:
        events.append("open")
        yield "connection"
        events.append("close")

    def session(of: Annotated[str, Depends(connection)]) -> Iterator[str]:
        events.append("begin")
        try:
            yield f"session of {of}"
        except ValueError:
            events.append("rollback")
            raise
        events.append("commit")

    async def user(message: Message) -> str:
        return message.key or "nobody"

    app = App(URL)

    @app.subscriber("orders", group="billing")
    async def bill(
        order: Order,
        db: Annotated[str, Depends(session)],
        raw: str = Depends(connection),  # type: ignore[assignment]
        *,
        who: Annotated[str, Depends(user)],
    ) -> None:
        events.append(f"{order.number} {db} {raw} {who}")
        if order.number == 2:
            raise ValueError("no")

    assert (await app.deliver({"number": 1}, key="ann")).verdict == "ack"
    first, events[:] = list(events), []
    assert (await app.deliver({"number": 2})).verdict == "retry"

    assert first == [
        "open",
        "begin",
        "1 session of connection connection ann",
        "commit",
        "close",
    ]
    assert events[:2] == ["open", "begin"]
    assert events[-1] == "rollback"  # The connection's generator was ended by the error, too.


async def test_plain_handlers_have_plain_dependencies_in_their_thread() -> None:
    app = App(URL)
    seen: list[str] = []

    def name() -> Iterator[str]:
        yield "ann"

    @app.subscriber("orders", group="billing")
    def bill(order: Order, who: Annotated[str, Depends(name)]) -> None:
        seen.append(f"{order.number} {who}")

    await app.deliver({"number": 1})

    assert seen == ["1 ann"]


def test_what_no_handler_can_be_called_with_is_refused_where_it_is_written() -> None:
    app = App(URL)

    async def later() -> str:
        return ""

    def takes_nothing() -> None: ...

    def two_bodies(first: Order, second: Order) -> None: ...

    def unknown(message: Message, other) -> None: ...  # type: ignore[no-untyped-def]

    def unreadable(body: type(app)) -> None: ...  # type: ignore[valid-type]

    def for_batches(batch: MessageBatch) -> None: ...

    def waits(message: Message, value: Annotated[str, Depends(later)]) -> None: ...

    refused: list[tuple[Callable[..., Any], str]] = [
        (takes_nothing, "takes nothing"),
        (two_bodies, "second"),
        (unknown, "other"),
        (unreadable, "cannot be read as"),
        (for_batches, "say batch=True"),
        (waits, "cannot depend on an async one"),
    ]
    for handler, text in refused:
        with pytest.raises(ternmq.BadRequest, match=text):
            app.subscriber("orders", group="billing")(handler)
    with pytest.raises(ternmq.BadRequest, match=r"list\[…\]"):
        app.subscriber("orders", group="billing", batch=True)(two_bodies)
    with pytest.raises(ternmq.BadRequest, match="takes a function"):
        Depends(3)  # type: ignore[arg-type]
    assert app.subscribers() == []


def test_a_function_that_depends_on_itself_is_refused() -> None:
    def inner(value: int = 0) -> int:
        return value

    inner.__defaults__ = (Depends(inner),)

    with pytest.raises(ternmq.BadRequest, match="depends on itself"):
        App(URL).subscriber("orders", group="billing")(
            lambda message, value=Depends(inner): None  # noqa: B008
        )


def test_annotations_that_only_type_checkers_see_still_mean_the_message() -> None:
    app = App(URL)

    def bill(message: "elsewhere.Message") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def lost(order: "elsewhere.Order") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    app.subscriber("orders", group="billing")(bill)

    assert app.subscribers()[0].body is None
    with pytest.raises(ternmq.BadRequest, match="must be importable"):
        app.subscriber("orders", group="billing")(lost)
