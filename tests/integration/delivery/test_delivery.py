"""Retries, filters, order, pause, as a client sees them: the real broker in this process."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import BadFilter, BadRequest, FilterConflict, TernError
from ternmq.testing import SimulatedDisk, node
from tests.waiting import until


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        yield client


async def take(consumer: Any, count: int) -> list[Any]:
    found = []
    async with asyncio.timeout(10):
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
    return found


async def line(mq: Any, group: str = "g") -> Any:
    [found] = await mq.admin.ledger(group=group)
    return found


async def ledger_shows(mq: Any, state: str, count: int) -> None:
    async def shown() -> bool:
        return bool(getattr(await line(mq), state) == count)

    await until(shown, f"{count} {state}")


async def test_a_failing_message_comes_again_as_the_next_attempt_by_the_groups_policy(
    mq: Any,
) -> None:
    """R12, Q14: retried by reference, the id never changes."""
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await mq.admin.set_group("orders", "g", retry="table:10ms,20ms")
        [first] = await take(consumer, 1)
        first.retry(reason="not yet")
        [second] = await take(consumer, 1)

        assert (first.attempt, second.attempt) == (1, 2)
        assert first.id == second.id
        second.ack()


async def test_a_message_that_fails_too_often_is_dead_and_says_why(mq: Any) -> None:
    """R13: dead letters per group."""
    await mq.send("orders", b"poison", key="k")
    async with mq.consumer("orders", group="g", attempts_max=3) as consumer:
        await mq.admin.set_group("orders", "g", retry="fixed:1ms")
        for attempt in (1, 2, 3):
            [message] = await take(consumer, 1)
            assert message.attempt == attempt
            await message.retry(reason="boom")
        await ledger_shows(mq, "dead", 1)
    [letter] = [m async for m in mq.read("%dead.g")]

    assert letter.body == b"poison"
    assert letter.key == "k"
    assert letter.properties["%attempt"] == 3
    assert "boom" in str(letter.properties["%reason"])


async def test_a_new_policy_applies_to_what_waits_already(mq: Any) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await mq.admin.set_group("orders", "g", retry="fixed:1h")
        [message] = await take(consumer, 1)
        await message.retry()
        assert (await line(mq)).waiting_retry == 1

        await mq.admin.set_group("orders", "g", retry="fixed:1ms")

        [again] = await take(consumer, 1)
        assert again.attempt == 2


async def test_a_paused_group_gets_nothing_until_it_is_resumed(mq: Any) -> None:
    """J13: policies at run time."""
    async with mq.consumer("orders", group="g") as consumer:
        await mq.admin.set_group("orders", "g", paused=True)
        await mq.send("orders", b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(consumer)), 0.2)

        await mq.admin.set_group("orders", "g", paused=False)

        assert len(await take(consumer, 1)) == 1


async def test_what_came_back_takes_half_of_a_pull_while_new_ones_wait(mq: Any) -> None:
    """R5: failing messages cannot starve the others."""
    for number in range(40):
        await mq.send("orders", b"%d" % number)
    async with mq.consumer("orders", group="g", prefetch=20) as consumer:
        for message in await take(consumer, 10):
            message.retry(after=0)
        await consumer.flush()
        await ledger_shows(mq, "waiting_retry", 0)
    async with mq.consumer("orders", group="g", prefetch=8) as consumer:
        first = await take(consumer, 8)
        assert any(message.attempt == 1 for message in first)
        assert any(message.attempt == 2 for message in first)


async def test_a_policy_that_cannot_be_read_is_refused(mq: Any) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g"):
        with pytest.raises(BadRequest, match="exponential:1s"):
            await mq.admin.set_group("orders", "g", retry="sometimes")


async def test_only_the_tags_that_were_asked_for_arrive_and_the_rest_is_counted(mq: Any) -> None:
    """R9: tag filter on the broker."""
    for number in range(30):
        await mq.send("orders", b"%d" % number, tag=("a", "b", "c")[number % 3])
    async with mq.consumer("orders", group="g", tag="a || c") as consumer:
        messages = await take(consumer, 20)
        assert {message.tag for message in messages} == {"a", "c"}
        for message in messages:
            message.ack()
        await consumer.flush()

    found = await line(mq)
    assert (found.acked, found.filtered) == (20, 10)


@pytest.mark.parametrize("priority", [False, True], ids=["plain", "priority"])
async def test_what_came_back_passes_the_filter_of_today(mq: Any, priority: bool) -> None:
    """R9: a group goes on with another filter; rows that the old one chose are tested again."""
    for number in range(30):
        await mq.send("orders", b"%d" % number, tag="ab"[number % 2], priority=number % 3)
    async with mq.consumer("orders", group="g", prefetch=20) as consumer:
        await mq.admin.set_group("orders", "g", retry="fixed:10ms", priority=priority)
        for message in await take(consumer, 10):
            message.retry()
        await consumer.flush()
    async with mq.consumer("orders", group="g", tag="b") as consumer:
        messages = await take(consumer, 15)
        assert {message.tag for message in messages} == {"b"}
        for message in messages:
            message.ack()
        await ledger_shows(mq, "filtered", 15)
        await ledger_shows(mq, "acked", 15)


async def test_consumers_that_start_together_with_different_filters_are_a_conflict(mq: Any) -> None:
    """R9: also where each brings a limit, which takes a moment to become safe."""
    both = [mq.consumer("orders", group="g", tag=tag, attempts_max=3) for tag in ("a", "b")]
    results = await asyncio.gather(*(one.start() for one in both), return_exceptions=True)
    for one in both:
        await one.close()

    assert sum(isinstance(result, FilterConflict) for result in results) == 1


async def test_a_condition_on_properties_filters_on_the_broker(mq: Any) -> None:
    """R10: SQL92; a missing property is unknown, not false."""
    await mq.send("orders", b"no amount")
    for amount in range(20):
        await mq.send("orders", b"%d" % amount, properties={"amount": amount})
    async with mq.consumer("orders", group="g", filter="amount BETWEEN 5 AND 7") as consumer:
        messages = await take(consumer, 3)
        assert [message.body for message in messages] == [b"5", b"6", b"7"]
    await ledger_shows(mq, "filtered", 18)


async def test_a_bad_filter_is_refused_when_subscribing(mq: Any) -> None:
    await mq.send("orders", b"x")
    with pytest.raises(BadFilter):
        async with mq.consumer("orders", group="g", filter="amount >"):
            pass


async def test_a_broker_may_take_no_expressions() -> None:
    """R10: a switch; tags work all the same."""
    async with node(sql_filters=False) as url, ternmq.connect(url, app="test") as mq:
        await mq.send("orders", b"x", tag="a")
        with pytest.raises(BadFilter, match="sql_filters is off"):
            async with mq.consumer("orders", group="g", filter="amount > 1"):
                pass
        async with mq.consumer("orders", group="g", tag="a", filter=" ") as consumer:
            [message] = await take(consumer, 1)
            assert message.body == b"x"


async def test_two_filters_in_one_group_are_a_conflict_that_names_both(mq: Any) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g", tag="a"):
        with pytest.raises(FilterConflict, match=r"'a'.*'b'"):
            async with mq.consumer("orders", group="g", tag="b"):
                pass


async def test_messages_of_one_key_come_in_order_one_at_a_time(mq: Any) -> None:
    """R6, J7, J16: a key waits for its own, other keys go on."""
    for number in range(60):
        await mq.send("orders", b"%d" % number, order_key="abc"[number % 3])
    seen: dict[str, list[int]] = {}
    out: set[str] = set()
    all_seen = asyncio.Event()

    async def work() -> None:
        async with mq.consumer("orders", group="g", ordered=True) as consumer:
            async for message in consumer:
                assert message.order_key not in out
                out.add(message.order_key)
                await asyncio.sleep(0)
                seen.setdefault(message.order_key, []).append(int(message.body))
                out.discard(message.order_key)
                message.ack()
                if sum(map(len, seen.values())) == 60:
                    all_seen.set()

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.wait_for(all_seen.wait(), 20)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert {key: len(numbers) for key, numbers in seen.items()} == {"a": 20, "b": 20, "c": 20}


async def test_a_failing_key_is_retried_in_place_and_holds_back_only_itself(mq: Any) -> None:
    for number in range(10):
        await mq.send("orders", b"%d" % number, order_key="ab"[number % 2])
    order: list[bytes] = []
    failed = False
    async with mq.consumer("orders", group="g", ordered=True) as consumer:
        async with asyncio.timeout(20):
            async for message in consumer:
                if message.body == b"2" and not failed:
                    failed = True
                    message.retry(after=0.05)
                    continue
                order.append(message.body)
                message.ack()
                if len(order) == 10:
                    break

    assert [body for body in order if int(body) % 2] == [b"1", b"3", b"5", b"7", b"9"]
    assert [body for body in order if not int(body) % 2] == [b"0", b"2", b"4", b"6", b"8"]


async def test_messages_without_a_key_are_not_held_back_in_an_ordered_group(mq: Any) -> None:
    await mq.send_many("orders", [b"%d" % number for number in range(100)])
    async with mq.consumer("orders", group="g", ordered=True) as consumer:
        messages = await take(consumer, 100)

    assert len({message.sequence for message in messages}) == 100


async def test_an_expired_message_is_not_handed_out_but_kept_as_a_dead_letter(mq: Any) -> None:
    """D10: dead letters also from messages whose time is over."""
    await mq.send("orders", b"short", ttl=0.01)
    await mq.send("orders", b"long", ttl=3600)
    await asyncio.sleep(0.05)
    async with mq.consumer("orders", group="g") as consumer:
        [message] = await take(consumer, 1)
        assert message.body == b"long"
        await message.ack()
        await ledger_shows(mq, "expired", 1)
    [letter] = [m async for m in mq.read("%dead.g")]

    assert letter.body == b"short"
    assert letter.properties["%reason"] == "expired"


async def test_a_dead_letter_sent_again_reaches_its_group_alone_at_attempt_1(mq: Any) -> None:
    """R13: re-sendable; other groups are not disturbed."""
    await mq.send("orders", b"x", key="k")
    async with mq.consumer("orders", group="other") as other:
        await (await take(other, 1))[0].ack()
        async with mq.consumer("orders", group="g") as consumer:
            [message] = await take(consumer, 1)
            await message.reject("bad")
            ranges = await mq.admin.open_dead_letters("g")

            done = await mq.admin.resend_dead_letters("g", ranges)
            [again] = await take(consumer, 1)

            assert (done.handled, done.failed) == (1, [])
            assert (again.id, again.topic, again.attempt) == (message.id, "orders", 1)
            assert again.properties["%resent"] == 1
            await again.reject("bad again")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(other)), 0.1)
    [(first, end)] = await mq.admin.open_dead_letters("g")
    letters = [m async for m in mq.read("%dead.g", start=first)]

    assert end - first == 1
    assert letters[0].properties["%resent"] == 1
    assert letters[0].properties["%topic"] == "orders"


async def test_a_group_made_again_does_not_find_what_was_sent_again_to_the_old_one(
    mq: Any,
) -> None:
    """Deleting and re-making brings nothing back from the dead."""
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await (await take(consumer, 1))[0].reject("bad")
    await mq.admin.resend_dead_letters("g", await mq.admin.open_dead_letters("g"))
    await mq.admin.delete_group("orders", "g")
    async with mq.consumer("orders", group="g", start="latest") as consumer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(consumer)), 0.2)

    assert [found.lane for found in await mq.admin.ledger(group="g")] == ["topic"]


async def test_settings_hold_for_the_private_lane_too(mq: Any) -> None:
    await mq.send("orders", b"x")
    async with mq.consumer("orders", group="g") as consumer:
        await (await take(consumer, 1))[0].reject("bad")
        await mq.admin.resend_dead_letters("g", await mq.admin.open_dead_letters("g"))
        await mq.admin.set_group("orders", "g", retry="fixed:1ms")
        (await take(consumer, 1))[0].retry()
        [again] = await take(consumer, 1)

        assert again.attempt == 2


async def test_a_deleted_dead_letter_is_not_open_any_more(mq: Any) -> None:
    await mq.send_many("orders", [b"a", b"b", b"c"])
    async with mq.consumer("orders", group="g") as consumer:
        for message in await take(consumer, 3):
            await message.reject()

    done = await mq.admin.delete_dead_letters("g", [(1, 2)])

    assert done.handled == 1
    assert await mq.admin.open_dead_letters("g") == [(0, 1), (2, 3)]


async def test_every_instance_gets_every_message_and_leaves_no_trace(mq: Any) -> None:
    """Q15, R5: broadcast."""
    await mq.send("cache.drop", b"before")

    async def listen(every: Any) -> list[bytes]:
        return [message.body async for message in _first(every, 2)]

    async with mq.broadcast("cache.drop") as one, mq.broadcast("cache.drop") as other:
        await mq.send_many("cache.drop", [b"a", b"b"])
        heard = await asyncio.wait_for(asyncio.gather(listen(one), listen(other)), 10)

    assert list(heard) == [[b"a", b"b"], [b"a", b"b"]]
    assert await mq.admin.groups() == []


async def test_an_instance_with_a_file_goes_on_where_it_stopped(mq: Any, tmp_path: Any) -> None:
    place = tmp_path / "position.json"
    await mq.send("cache.drop", b"before")
    async with mq.broadcast("cache.drop", position=place) as every:
        await mq.send_many("cache.drop", [b"a", b"b"])
        [heard] = [message.body async for message in _first(every, 1)]
        assert heard == b"a"
    async with mq.broadcast("cache.drop", position=place) as every:
        again = [message.body async for message in _first(every, 2)]

    assert again == [b"a", b"b"]  # The last one shown counts as done when the next is asked for.


async def _first(every: Any, count: int) -> Any:
    async for message in every:
        yield message
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("options", [{"tag": "a"}, {"ordered": True}], ids=["filter", "order"])
async def test_a_damaged_batch_costs_its_own_rows_and_stops_nobody(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """What was chosen before it is handed out, what lies behind it follows."""
    disk = SimulatedDisk()
    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url, app="t") as mq:
        for body in (b"first", b"damaged", b"third"):
            await mq.send("orders", body, tag="a", order_key="k")
    [log] = [path for path in disk._files if path.parent.name == "message"]
    disk.flip(log, disk.read(log).index(b"damaged"))

    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url, app="t") as mq:
        async with mq.consumer("orders", group="g", **options) as consumer:
            found = []
            for _ in range(2):
                [message] = await take(consumer, 1)
                found.append(message.body)
                await message.ack()
            await ledger_shows(mq, "expired", 1)

        assert found == [b"first", b"third"]
        assert (await line(mq)).acked == 2


async def test_the_next_attempt_knows_why_the_last_one_failed(mq: Any) -> None:
    """Q14: type, text and traceback travel with the delivery; without one there is none."""
    await mq.send_many("orders", [b"a", b"b", b"c"])
    async with mq.consumer("orders", group="g") as consumer:
        first = await take(consumer, 3)
        try:
            raise LookupError("no such order")
        except LookupError as error:
            first[0].retry(after=0, error=error)
        first[1].retry(after=0, reason="not yet")
        first[2].retry(after=0)
        again = {m.body: m for m in await take(consumer, 3)}

    assert [m.last_error for m in first] == [None, None, None]
    known = again[b"a"].last_error
    assert (known.type, known.text) == ("LookupError", "no such order")
    assert "raise LookupError" in known.traceback
    assert again[b"b"].last_error.text == "not yet"
    assert again[b"c"].last_error is None


async def test_the_last_error_survives_a_power_cut(tmp_path: Path) -> None:
    """The texts live in the pull log; a start finds them there."""
    disk = SimulatedDisk()
    for life in range(3):
        running = node(data_dir=tmp_path, disk=disk, session_grace_ms=10)
        async with ternmq.connect(await running.__aenter__(), app="test") as mq:
            if life == 0:
                await mq.send("orders", b"a")
            async with mq.consumer("orders", group="g") as consumer:
                [message] = await take(consumer, 1)
                if life:
                    assert message.last_error.text == f"life {life - 1}"
                    assert message.attempt == life + 1
                await message.retry(after=0, error=ValueError(f"life {life}"))
            await mq.admin.set_group("orders", "g", retry="default")  # Safe: so is all before.
        disk.crash(life)
        with suppress(TernError, ExceptionGroup):
            await running.__aexit__(None, None, None)


async def test_a_dead_letter_keeps_the_last_error(mq: Any) -> None:
    """R13: also of a message that is rejected without a word after it failed."""
    await mq.send_many("orders", [b"failed", b"rejected", b"never"])
    async with mq.consumer("orders", group="g", attempts_max=1) as consumer:
        failed, rejected, never = await take(consumer, 3)
        await failed.retry(error=KeyError("k"))
        await never.reject("no good")
        await mq.admin.set_group("orders", "g", attempts_max=5)
        await rejected.retry(after=0, error=OSError("disk"))
        [again] = await take(consumer, 1)
        await again.reject("enough")
        await ledger_shows(mq, "dead", 3)
    letters = {m.body: m.properties async for m in mq.read("%dead.g")}

    assert letters[b"failed"]["%error_type"] == "KeyError"
    assert "KeyError" in str(letters[b"failed"]["%error_traceback"])
    assert letters[b"rejected"]["%error_text"] == "disk"
    assert "%error_text" not in letters[b"never"]


async def test_failures_from_all_over_a_batch_come_again_with_their_own_bodies(mq: Any) -> None:
    """Q14: the broker sends the batch again without the bodies of the other rows."""
    chance = random.Random(1)  # Not worth compressing: else the chunks of neighbours come along.
    bodies = [chance.randbytes(256) for _ in range(1_000)]
    await mq.send_many("orders", bodies)
    async with mq.consumer("orders", group="g", prefetch=4_000) as consumer:
        for number, message in enumerate(await take(consumer, 1_000)):
            if number % 100 == 7:
                message.retry(after=0)
            else:
                message.ack()
        again = await take(consumer, 10)

        assert [message.attempt for message in again] == [2] * 10
        assert [message.body for message in again] == bodies[7::100]
        assert sum(map(len, again[0]._delivery.batch.bodies())) == sum(map(len, bodies[7::100]))
        for message in again:
            message.ack()
    assert (await line(mq)).acked == 1_000
