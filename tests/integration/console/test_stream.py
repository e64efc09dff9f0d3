"""A group as a stream of server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from ternmq import connect
from tests.integration.console.conftest import SeededConsole, seeded
from tests.waiting import until

GROUP = "/api/v1/topics/order.new/groups/screen"


async def events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield msgspec.json.decode(line.removeprefix("data: "))


async def send(console: SeededConsole, *texts: str) -> None:
    messages = {"messages": [{"text": text} for text in texts]}
    sent = await console.http.post("/api/v1/topics/order.new/messages", json=messages)
    assert sent.status_code == 200


async def test_messages_come_as_events_and_are_settled_by_handle_or_when_sent() -> None:
    async with seeded(listens=True, large=False) as console, connect(console.url) as mq:
        await send(console, "one", "two")
        async with console.http.stream("GET", f"{GROUP}/stream") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            stream = events(answer)
            first, second = await anext(stream), await anext(stream)
            settled = await console.http.post(
                f"{GROUP}/settle",
                json={"ack": [first["ack_id"]], "reject": [{"ack_id": second["ack_id"]}]},
            )
        await send(console, "three")
        async with console.http.stream("GET", f"{GROUP}/stream?ack=sent") as answer:
            third = await anext(events(answer))

            async def acked() -> bool:
                [group] = await mq.admin.groups("order.new", "screen")
                return (group.ledger.acked, group.ledger.dead) == (2, 1)

            await until(acked, "what was sent is acked")

        assert [each["text"] for each in (first, second, third)] == ["one", "two", "three"]
        assert settled.json()["settled"] == 2


async def test_what_a_caller_never_read_goes_back_at_once() -> None:
    """It goes away with messages on their way to it."""
    async with seeded(listens=True, large=False) as console, connect(console.url) as mq:
        async with console.http.stream("GET", f"{GROUP}/stream?lease_ms=3600000"):
            await asyncio.sleep(0)
        await send(console, "one")

        async def back() -> bool:
            pulled = await console.http.post(f"{GROUP}/pull", json={"max": 1})
            return [each["attempt"] for each in pulled.json()["messages"]] == [1]

        await until(back, "another one gets it as if nobody had seen it")
        [group] = await mq.admin.groups("order.new", "screen")
        assert group.ledger.in_flight == 1


async def test_a_stream_of_what_is_not_there_is_a_problem() -> None:
    async with seeded(listens=False, large=False) as console:
        missing = await console.http.get("/api/v1/topics/no.such/groups/g/stream")
        strange = await console.http.get(f"{GROUP}/stream?max=0")

        assert (missing.status_code, strange.status_code) == (404, 400)
