"""Dead letters as calls of the client: groups that have some, choosing, sending, taking back."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.api.views.letters import LetterBox
from ternmq.client.reading.letters import DeadLetterChoice
from ternmq.core.errors import TernError
from ternmq.testing import SimulatedDisk, node
from tests.integration.delivery.test_delivery import take
from tests.integration.processes import Node, tern
from tests.waiting import until, wait_until


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="shop") as client:
        yield client


async def bury(mq: Any, count: int) -> None:
    """So many letters of group g, half of them of one error and half of another."""
    for number in range(count):
        await mq.send("t", f"{number}".encode())
    consumer = await mq.consumer("t", group="g", start="earliest").start()
    await mq.admin.set_group("t", "g", attempts_max=1)
    for _ in range(count):
        [message] = await take(consumer, 1)
        error = KeyError("gone") if int(message.body) % 2 else ValueError("no account")
        await message.retry(error=error)
    await consumer.close()
    await until(lambda: letters_open(mq, count), f"{count} open letters")


async def letters_open(mq: Any, count: int) -> bool:
    return len((await mq.letters("g").choose()).ids) == count


async def test_groups_with_letters_are_listed_with_how_many_are_open(mq: Any) -> None:
    await bury(mq, 4)
    box = mq.letters("g")
    await box.delete(await box.choose(DeadLetterChoice(error="keyerror")))

    [found] = await mq.admin.dead_groups()

    assert (found.group, found.open, found.stored, found.broker_group) == ("g", 2, 4, "main")


async def test_chosen_letters_are_sent_again_and_the_others_stay(mq: Any) -> None:
    await bury(mq, 4)
    box = mq.letters("g")

    done = await box.resend(await box.choose(DeadLetterChoice(error="no account", topic="t")))

    assert (done.chosen, done.handled, done.failed) == (2, 2, [])
    assert [letter.notes["%error_type"] async for letter in box.open()] == ["KeyError"] * 2


async def test_what_nobody_was_handed_is_taken_back_with_its_reason(mq: Any) -> None:
    """D10: sent again by mistake, before the bug was mended."""
    await bury(mq, 4)
    box = mq.letters("g")
    before = {letter.message.id: letter.notes async for letter in box.open()}
    await mq.admin.set_group("t", "g", paused=True)
    await box.resend(await box.choose())

    assert await mq.admin.recall_dead_letters("g", "t", [(1, 2)], "main") == 1
    assert await mq.admin.recall_dead_letters("g", "t") == 3
    assert await mq.admin.recall_dead_letters("g", "t") == 0, "each once"

    after = {letter.message.id: letter.notes async for letter in box.open()}
    assert after.keys() == before.keys()
    for name in ("%error_type", "%error_text", "%reason", "%topic"):
        assert {key: notes.get(name) for key, notes in after.items()} == {
            key: notes.get(name) for key, notes in before.items()
        }
    await mq.admin.set_group("t", "g", paused=False)
    async with mq.consumer("t", group="g") as consumer:
        await mq.send("t", b"after")
        [message] = await take(consumer, 1)
        assert message.body == b"after", "nothing of what was taken back is delivered"
        await message.ack()
    [line] = [line for line in await mq.admin.ledger("t", "g") if line.lane == "private"]
    assert (line.total, line.dead) == (4, 4)


async def test_what_a_consumer_has_in_hand_is_not_taken_back(mq: Any) -> None:
    await bury(mq, 2)
    box = mq.letters("g")
    consumer = await mq.consumer("t", group="g").start()
    await box.resend(await box.choose())
    held = await take(consumer, 2)

    assert await mq.admin.recall_dead_letters("g", "t") == 0

    for message in held:
        await message.ack()
    await consumer.close()


async def test_what_was_taken_back_stays_so_across_a_power_cut(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    running = node(data_dir=tmp_path, disk=disk)
    async with ternmq.connect(await running.__aenter__(), app="shop") as mq:
        await bury(mq, 3)
        await mq.admin.set_group("t", "g", paused=True)
        box = mq.letters("g")
        await box.resend(await box.choose())
        assert await mq.admin.recall_dead_letters("g", "t") == 3
    disk.crash(1)
    with suppress(TernError, ExceptionGroup):
        await running.__aexit__(None, None, None)

    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url, app="shop") as mq:
        assert await letters_open(mq, 3)
        assert sum(line.ready for line in await mq.admin.ledger("t", "g")) == 0


async def test_the_command_line_lists_groups_and_takes_back(node: Node) -> None:
    url = node.url
    async with ternmq.connect(url, app="shop") as mq:
        await bury(mq, 1)

    def is_open(count: int) -> bool:
        """Figures are shared for a second by all who ask."""
        return bool(tern("dead", "groups", "--json", url=url).json()[0]["open"] == count)

    assert is_open(1)
    tern("dead", "resend", "g", "--yes", url=url)
    wait_until(lambda: is_open(0))
    assert tern("dead", "recall", "g", "--topic", "t", "--yes", "--json", url=url).json() == {
        "taken": 1
    }
    wait_until(lambda: is_open(1))


async def test_many_letters_of_which_every_other_is_handled_are_read_with_few_requests() -> None:
    """Pages of dead letters stay quick: the newest are asked for and read together."""
    count = 800
    async with node() as url, ternmq.connect(url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(count)])
        async with mq.consumer("orders", group="g", start="earliest", prefetch=count) as consumer:
            for _ in range(count):
                (await anext(consumer)).reject("no")
            await consumer.flush()
        for begin in range(0, count, 80):
            some = [(at, at + 1) for at in range(begin, begin + 80, 2)]
            await mq.admin.delete_dead_letters("g", some)
        box = LetterBox(mq=mq, group="g")
        sent: list[Any] = []
        ask = mq.cluster.ask

        async def counted(*given: Any, **named: Any) -> Any:
            sent.append(given[1])
            return await ask(*given, **named)

        mq.cluster.ask = counted  # type: ignore[method-assign]
        found = await box.read(limit=300)

        assert (found.open, len(found.letters), found.more) == (count // 2, 300, count // 2 - 300)
        assert {each.message.sequence % 2 for each in found.letters} == {1}
        assert min(each.message.sequence for each in found.letters) == count - 599
        assert await box.count() == count // 2
        assert len(sent) < 20, "not one request for each"
