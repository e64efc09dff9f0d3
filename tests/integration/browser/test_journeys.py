"""What people come for, from the first page to the end, in a real browser on a real console.

Each is one of the journeys of the design: a delayed message, why a group is slow, a pause, a
replay, a test message, another leader. The others (a message that did not arrive, dead letters,
logging in) are in `tests/integration/console`.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ternmq import connect
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import serving_console
from ternmq.core.clock import SystemClock
from tests.integration.broker_pair import make_pair, read_standing
from tests.integration.console.conftest import seeded
from tests.integration.console.test_browser import BROWSER, browsing
from tests.integration.processes import NodeFactory, free_ports
from tests.waiting import until

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="chromium-headless-shell is not installed (make test-tools)"
)


async def words(page: Any) -> str:
    return str(await page.locator("main").inner_text())


async def test_a_delayed_message_is_found_on_the_horizon_moved_sent_and_cancelled() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        later = datetime.now(UTC) + timedelta(days=30)
        await page.goto(f"{console.origin}/delayed")
        await page.locator("svg.columns a").first.click()
        assert "from=" in page.url, "what is shown is in the address"
        for button, told in (
            ("Move …", "1 rescheduled"),
            ("Send now …", "1 fired"),
            ("Cancel …", "1 cancelled"),
        ):
            await page.goto(f"{console.origin}/delayed")
            await page.locator("tbody input[name=ids]").last.check()
            if button == "Move …":
                await page.get_by_label("Move to").fill(later.isoformat())
            await page.get_by_role("button", name=button).click()
            assert "Nothing has happened yet" in await words(page)
            await page.get_by_role("button", name=button.removesuffix(" …"), exact=True).click()
            assert told in await words(page)

        async with connect(console.url) as mq:
            [line] = await mq.admin.delays.ledger("mail.outgoing")
            assert line.cancelled == 1


async def test_who_consumes_how_far_behind_and_why_slow() -> None:
    """The sentence, who holds what since when, how long messages wait and are worked on."""
    async with (
        seeded(listens=True, large=False) as console,
        browsing() as page,
        connect(console.url, app="slow-app") as mq,
    ):
        await page.goto(f"{console.origin}/groups")
        await page.get_by_role("link", name="analytics", exact=True).click()
        await page.get_by_text("Nobody consumes: 2,008 messages wait").wait_for()
        consumer = await mq.consumer("order.paid", group="analytics", prefetch=50).start()
        held = [await anext(consumer) for _ in range(20)]
        for message in held[:10]:
            message.ack()
        await consumer.flush()
        await page.get_by_role("heading", name="In flight: who holds what").wait_for()
        await page.locator("td", has_text="slow-app@").first.wait_for()
        await page.get_by_text("10 messages, last 5 to 10 min").wait_for()

        shown = await words(page)
        assert "from stored until handed out" in shown
        assert "half of them within" in shown
        await consumer.close()


async def test_a_pause_is_seen_in_every_window_until_it_is_over() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        path = f"{console.origin}/topics/order.paid/groups/analytics"
        other = await page.context.browser.new_page()
        await other.goto(f"{console.origin}/groups?q=analytics")
        await page.goto(path)
        await page.get_by_role("button", name="Pause", exact=True).click()
        assert "nothing would be handed out to analytics" in await words(page)
        await page.get_by_role("button", name="Pause group").click()
        await other.locator(".badge", has_text="paused").wait_for()
        await page.goto(path)
        await page.get_by_text("It is paused").wait_for()
        await page.get_by_role("button", name="Resume").click()
        await page.get_by_role("button", name="Resume group").click()
        await other.locator(".badge", has_text="paused").wait_for(state="detached")


async def test_the_last_hour_is_replayed_into_one_group() -> None:
    """A dry run counts, a job copies, the group alone has them."""
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(f"{console.origin}/topics/order.shipped/groups/tracking")
        await page.get_by_label("Replay from").fill("1h")
        await page.get_by_role("button", name="Replay …").click()
        assert "300 messages would be copied into group tracking alone" in await words(page)
        await page.get_by_role("button", name="Replay as a job").click()
        assert "begins in 10 s" in await words(page)
        await page.goto(f"{console.origin}/jobs")
        await page.locator("main table a").first.click()
        await page.get_by_text("300 messages copied into tracking").first.wait_for(timeout=60_000)

        async with connect(console.url) as mq:
            lanes = await mq.admin.groups("order.shipped", "tracking")
            assert {lane.ledger.lane: lane.ledger.ready for lane in lanes} == {
                "topic": 0,
                "private": 300,
            }


async def test_a_test_message_is_sent_and_its_way_is_followed() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(f"{console.origin}/topics/empty.topic")
        await page.get_by_role("link", name="Send one").click()
        await page.get_by_label("Body").fill('{"order": 1}')
        await page.locator("main input[name=key]").fill("o-1")
        async with connect(console.url) as mq:
            await mq.admin.create_group("empty.topic", "readers")
            await page.get_by_role("button", name="Send", exact=True).click()
            await page.locator("main a.mono").first.click()
            await page.get_by_text("nobody consumes in group readers").wait_for()
            async with mq.consumer("empty.topic", group="readers") as consumer:
                (await anext(consumer)).ack()
                await consumer.flush()

            async def acked() -> bool:
                await page.reload()
                return "it was acked" in await words(page)

            await until(acked, "the page says that it was acked")


async def test_another_member_leads_by_a_button(tmp_path: Path, node_factory: NodeFactory) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    before = (await read_standing(pair.url)).master
    config = ConsoleConfig(url=pair.url, port=free_ports(1))
    async with serving_console(config, SystemClock()) as origin, browsing() as page:
        await page.goto(f"{origin}/cluster")
        await page.get_by_role("button", name="Hand over …").first.click()
        assert "nothing is lost" in await words(page)
        await page.get_by_role("button", name="Hand over").click()
        assert "is led by another member" in await words(page)
    assert (await read_standing(pair.url)).master != before


async def test_a_node_that_dies_is_a_red_strip_and_heals(node_factory: NodeFactory) -> None:
    """The data of the last look stays; nothing is shown as if it were fresh."""
    node = node_factory()
    async with connect(node.url) as mq:
        await mq.send("orders", b"one")
    config = ConsoleConfig(url=node.url, port=free_ports(1))
    async with serving_console(config, SystemClock()) as origin, browsing() as page:
        await page.goto(f"{origin}/topics")
        await page.get_by_role("link", name="orders", exact=True).wait_for()
        node.kill()
        await page.locator(".strip.bad").first.wait_for(timeout=60_000)
        assert "orders" in await words(page)
        node.start()
        await page.locator(".strip.bad").first.wait_for(state="detached", timeout=60_000)
