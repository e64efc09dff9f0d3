"""`/api/v1` over a real node: produce in every form, consume without a connection, look, order."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from ternmq import connect
from ternmq.client.consuming.lease_handle import read_handle
from tests.integration.console.conftest import SeededConsole, seeded
from tests.waiting import until

ORDERS = "/api/v1/topics/order.new/messages"
GROUP = "/api/v1/topics/order.new/groups/billing"


async def bodies(url: str, topic: str) -> list[bytes]:
    async with connect(url) as mq:
        return [message.body async for message in mq.read(topic)]


async def test_messages_are_sent_as_json_ndjson_raw_and_events(console: SeededConsole) -> None:
    http = console.http
    one = {"json": {"order": 1}, "key": "o-1", "tag": "vip", "properties": {"amount": 12}}
    two = {"text": "订单", "priority": 3}
    three = {"base64": base64.b64encode(b"\xff\x00").decode()}
    answers = [
        await http.post(ORDERS, json={"messages": [one, two, three]}),
        await http.post(
            ORDERS,
            content=b'{"text":"a"}\n\n{"text":"b"}\n',
            headers={"Content-Type": "application/x-ndjson"},
        ),
        await http.post(
            ORDERS,
            content=b"\x01raw",
            headers={
                "Content-Type": "text/plain",
                "Tern-Key": "k%C3%A9",
                "Tern-Property-Size": "9",
            },
        ),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    receipts = [each for answer in answers for each in answer.json()["receipts"]]
    assert [each["sequence"] for each in receipts] == list(range(6))
    assert await bodies(console.url, "order.new") == [
        b'{"order":1}',
        "订单".encode(),
        b"\xff\x00",
        b"a",
        b"b",
        b"\x01raw",
    ]
    items = (await http.get(ORDERS)).json()["items"]
    assert items[0]["json"] == {"order": 1} and items[0]["properties"] == {"amount": 12}
    assert items[2]["base64"] == "/wA="
    assert items[5]["key"] == "ké" and items[5]["properties"] == {"size": "9"}


async def test_events_and_idempotent_requests_are_stored_once(console: SeededConsole) -> None:
    event = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "paid", "data": {"n": 1}}
    single = {"Content-Type": "application/cloudevents+json"}
    batch = {"Content-Type": "application/cloudevents-batch+json"}
    binary = {
        "Content-Type": "text/plain",
        "ce-specversion": "1.0",
        "ce-id": "e-3",
        "ce-source": "/shop",
        "ce-type": "paid",
        "ce-subject": "o-3",
    }
    second = event | {"id": "e-2", "subject": "o-2"}
    http = console.http
    first = await http.post(ORDERS, content=msgspec.json.encode(event), headers=single)
    both = await http.post(ORDERS, content=msgspec.json.encode([event, second]), headers=batch)
    third = await http.post(ORDERS, content=b"third", headers=binary)
    keyed = [
        await http.post(
            ORDERS, json={"messages": [{"text": "x"}]}, headers={"Idempotency-Key": "r-1"}
        )
        for _ in range(2)
    ]

    assert not first.json()["receipts"][0]["duplicate"]
    assert [each["duplicate"] for each in both.json()["receipts"]] == [True, False]
    assert third.status_code == 200
    assert [each.json()["receipts"][0]["duplicate"] for each in keyed] == [False, True]
    assert await bodies(console.url, "order.new") == [b'{"n":1}', b'{"n":1}', b"third", b"x"]
    items = (await http.get(ORDERS)).json()["items"]
    assert items[1]["key"] == "o-2" and items[1]["tag"] == "paid"
    assert items[1]["properties"]["ce_source"] == "/shop"


async def test_a_wrong_message_is_a_problem_that_names_it(console: SeededConsole) -> None:
    wrong: list[Any] = [
        {"messages": [{"text": "a", "json": 1}]},
        {"messages": [{"text": "a"}, {}]},
        {"messages": []},
        {"messages": [{"text": "a", "colour": "red"}]},
        {"messages": [{"base64": "&"}]},
        {"messages": [{"text": "a", "priority": 300}]},
        [],
    ]
    for body in wrong:
        answer = await console.http.post(ORDERS, json=body)

        assert answer.status_code == 400, body
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "bad_request"
    missing = await console.http.get("/api/v1/topics/no.such")
    assert missing.status_code == 404 and missing.json()["code"] == "topic_not_found"
    strange = await console.http.post("/api/v1/topics/a%20b/messages", json=wrong[0])
    assert strange.status_code == 400 and strange.json()["code"] == "bad_name"


def forged(ack_id: str) -> str:
    """The same message, by somebody who does not know the key."""
    return read_handle(ack_id)._replace(key=1).text()


async def test_a_group_is_consumed_without_a_connection(console: SeededConsole) -> None:
    http = console.http
    await http.post(ORDERS, json={"messages": [{"text": str(at)} for at in range(10)]})
    pulled = (await http.post(f"{GROUP}/pull", json={"max": 10, "wait_ms": 5_000})).json()
    ids = [message["ack_id"] for message in pulled["messages"]]
    settled = await http.post(
        f"{GROUP}/settle",
        json={
            "ack": ids[:7],
            "retry": [{"ack_id": ids[7], "after_ms": 0, "error": "later"}],
            "reject": [{"ack_id": ids[8], "error": "bad order"}],
        },
    )
    made_up = await http.post(f"{GROUP}/settle", json={"ack": [forged(ids[9])]})
    extended = await http.post(f"{GROUP}/extend", json={"ack_ids": [ids[9]], "lease_ms": 60_000})
    again = (await http.post(f"{GROUP}/pull", json={"max": 10, "wait_ms": 5_000})).json()
    twice = await http.post(f"{GROUP}/settle", json={"ack": [ids[0]]})

    assert [message["text"] for message in pulled["messages"]] == [str(at) for at in range(10)]
    assert settled.json() == {"settled": 9, "late": 0, "late_ids": []}
    assert made_up.json() == {"settled": 0, "late": 1, "late_ids": [forged(ids[9])]}
    assert extended.json() == {"extended": 1, "late": 0, "late_ids": []}
    nonsense = await http.post(f"{GROUP}/settle", json={"ack": ["nonsense"]})
    assert (nonsense.status_code, nonsense.json()["code"]) == (400, "bad_request")
    assert [(each["text"], each["attempt"]) for each in again["messages"]] == [("7", 2)]
    assert again["messages"][0]["last_error"]["text"] == "later"
    assert twice.json() == {"settled": 0, "late": 1, "late_ids": [ids[0]]}
    async with connect(console.url) as mq:
        [group] = await mq.admin.groups("order.new", "billing")
        assert (group.ledger.acked, group.ledger.dead, group.ledger.in_flight) == (7, 1, 2)


async def test_what_is_not_settled_in_time_comes_again(console: SeededConsole) -> None:
    http = console.http
    await http.post(ORDERS, json={"messages": [{"text": "one"}]})
    first = await http.post(f"{GROUP}/pull", json={"wait_ms": 5_000, "lease_ms": 100})
    second = await http.post(f"{GROUP}/pull", json={"wait_ms": 20_000})
    late = await http.post(f"{GROUP}/settle", json={"ack": [first.json()["messages"][0]["ack_id"]]})

    assert second.json()["messages"][0]["attempt"] == 2
    assert (late.json()["settled"], late.json()["late"]) == (0, 1)


async def test_lists_have_cursors_and_topics_and_groups_are_made_and_changed(
    console: SeededConsole,
) -> None:
    http = console.http
    made = await http.put("/api/v1/topics/made.here", json={"rate": 5})
    changed = await http.patch("/api/v1/topics/made.here", json={"rate": 0})
    strange = await http.patch("/api/v1/topics/made.here", json={"colour": 1})
    grouped = await http.put("/api/v1/topics/made.here/groups/g", json={"attempts_max": 3})
    shown = await http.get("/api/v1/topics/made.here/groups/g")
    deleted = await http.delete("/api/v1/topics/made.here")

    assert made.json()["settings"]["rate"] == 5
    assert changed.json()["settings"]["rate"] == 0
    assert strange.status_code == 400 and "colour" in strange.json()["detail"]
    assert grouped.json()["settings"]["attempts_max"] == 3
    assert shown.json()["lanes"][0]["total"] == 0
    assert deleted.status_code == 204
    names: list[str] = []
    after = ""
    while True:
        page = (await http.get("/api/v1/topics", params={"limit": 2, "after": after})).json()
        names += [item["topic"] for item in page["items"]]
        after = page["next"]
        if not after:
            break
    expected = {"order.paid", "order.shipped", "mail.outgoing", "empty.topic"}
    assert names == sorted(names) and expected <= set(names)


async def test_actions_preview_and_act(console: SeededConsole) -> None:
    of = {"topic": "order.paid", "group": "billing", "start": "earliest"}
    http = console.http
    dry = (await http.post("/api/v1/actions/reset-group?dry_run=true", json=of)).json()
    done = (await http.post("/api/v1/actions/reset-group", json=of)).json()
    lacking = await http.post("/api/v1/actions/reset-group", json={"topic": "order.paid"})

    assert dry["facts"] == done["facts"] == {"again": 400, "skipped": 0}
    assert (dry["done"], done["done"]) == (False, True)
    assert lacking.status_code == 400 and "needs group" in lacking.json()["detail"]


async def test_one_message_says_what_became_of_it(console: SeededConsole) -> None:
    answer = (await console.http.get(f"/api/v1/messages/{console.ids['body-3']}")).json()
    [kept] = [item for item in answer["items"] if item["lane"] == "topic"]
    fates = {each["state"]["group"]: each["why"] for each in kept["groups"]}

    assert fates["analytics"] == "nobody consumes in group analytics at present"
    assert "it is a dead letter of billing" in fates["billing"]


async def test_the_watch_streams_the_same_snapshot_to_everybody() -> None:
    async with seeded(listens=True, large=False) as console:
        path = "/api/v1/watch?groups=billing&topics=order.paid"

        async def first_event() -> Any:
            async with console.http.stream("GET", path) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        return msgspec.json.decode(line.removeprefix("data: "))

        one, other = await asyncio.gather(first_event(), first_event())
        assert one["groups"][0]["ledger"]["acked"] == 380
        assert one["at"] == other["at"]
        live = await _live_event(console, "/topics/order.paid/groups/billing")
        assert "adds up to 2,008" in live


async def _live_event(console: SeededConsole, path: str) -> str:
    found: list[str] = []
    async with console.http.stream("GET", "/live", params={"at": path}) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found.append(line)
            elif found and not line:
                return "\n".join(found)
    raise AssertionError("the stream ended")


async def test_a_console_waits_for_its_cluster_and_says_so(tmp_path: Any) -> None:
    import httpx

    from ternmq.console.config import ConsoleConfig
    from ternmq.console.process import making_site
    from ternmq.core.clock import SystemClock
    from ternmq.testing import node
    from tests.integration.processes import free_ports

    async with node() as url:
        port = url.rpartition(":")[2]
    config = ConsoleConfig(url=url, port=free_ports(1))
    async with making_site(config, SystemClock()) as site:
        transport = httpx.ASGITransport(site.app)
        async with httpx.AsyncClient(transport=transport, base_url=config.origin) as http:
            away = await http.get("/")
            assert away.status_code == 200 and "Nobody answers." in away.text
            async with node(ports=int(port)):

                async def there() -> bool:
                    return "Nothing needs attention" in (await http.get("/")).text

                await until(there, "the console sees the node")


def test_only_loopback_is_listened_on() -> None:
    from ternmq.console.config import ConsoleConfig
    from ternmq.core.errors import BadConfig

    with pytest.raises(BadConfig, match="listens on loopback only"):
        ConsoleConfig(url="tern://127.0.0.1:7700", host="0.0.0.0")


async def test_a_group_says_how_long_its_messages_take(console: SeededConsole) -> None:
    times = (await console.http.get("/api/v1/topics/order.paid/groups/billing/times")).json()

    for part in ("recent", "ever"):
        assert times[part]["handle"]["messages"] == 380, "those that were acked"
        assert times[part]["wait"]["messages"] >= 400
        assert times[part]["wait"]["p50_s"] <= times[part]["wait"]["p99_s"]
        buckets = times[part]["handle"]["buckets"]
        assert sum(each["messages"] for each in buckets) == 380
        assert buckets[-1]["up_to_s"] is None
    missing = await console.http.get("/api/v1/topics/order.paid/groups/nobody/times")
    assert (missing.status_code, missing.json()["code"]) == (404, "group_not_found")
