"""Journeys in a real browser on a real console; skipped by name where there is no browser.

Every page in both themes and both widths is looked at by axe, which must find nothing.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ternmq import connect
from tests.integration.console.conftest import seeded
from tests.waiting import until

BROWSER = shutil.which("chromium-headless-shell")

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="chromium-headless-shell is not installed (make test-tools)"
)

PATHS = (
    "/",
    "/topics",
    "/topics/order.paid",
    "/topics/order.paid/messages?limit=10",
    "/topics/order.paid/groups/billing",
    "/topics/order.paid/send",
    "/topics/no.such",
    "/groups",
    "/dead",
    "/dead/billing",
    "/delayed",
    "/refused/order.paid",
    "/half",
    "/jobs",
    "/do/resend-job?group=billing&canary=5",
    "/clients",
    "/cluster",
    "/api",
    "/search?q=o-5",
    "/do/reset-group?topic=order.paid&group=billing&start=earliest",
)
LOOKS = (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390))


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[Any]:
    """A page of a fresh browser; what its scripts complain about fails the test."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER)
        try:
            page = await browser.new_page(**options)
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
            yield page
            assert not complaints
        finally:
            await browser.close()


@pytest.mark.parametrize(("theme", "width"), LOOKS)
async def test_axe_finds_nothing_on_any_page_in_any_look(theme: str, width: int) -> None:
    """Light and dark, wide and as narrow as a phone; nothing is wider than the screen."""
    from axe_playwright_python.async_playwright import Axe

    async with seeded(listens=True, large=False) as console, browsing() as page:
        paths = [*PATHS, f"/m/{console.ids['body-0']}", f"/m/{console.ids['body-3']}"]
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.set_viewport_size({"width": width, "height": 900})
        for path in paths:
            await page.goto(console.origin + path)
            found = (await Axe().run(page)).response["violations"]
            names = [(each["id"], each["nodes"][0]["html"][:100]) for each in found]
            wide = await page.evaluate("document.documentElement.scrollWidth")

            assert (path, names) == (path, [])
            assert wide <= width, (path, wide)


async def test_my_message_did_not_arrive() -> None:
    """By keyboard: / and the id lead to the sentence that says why."""
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(console.origin)
        await page.keyboard.press("/")
        await page.keyboard.type(console.ids["body-3"])
        await page.keyboard.press("Enter")
        await page.locator("main a.mono").first.click()

        words = await page.locator("main").inner_text()
        assert "it is a dead letter of billing" in words
        assert "nobody consumes in group analytics at present" in words


async def test_keys_lead_everywhere_and_the_theme_is_remembered() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(console.origin)
        for keys, path in (
            ("gt", "/topics"),
            ("gg", "/groups"),
            ("gd", "/dead"),
            ("gc", "/cluster"),
        ):
            for key in keys:
                await page.keyboard.press(key)
            await page.wait_for_url(f"**{path}")
        await page.keyboard.press("?")
        assert await page.locator("dialog").is_visible()
        await page.keyboard.press("Escape")
        await page.locator("#theme").click()
        await page.goto(f"{console.origin}/topics")

        assert await page.locator("html").get_attribute("data-theme") == "dark"


async def test_a_page_follows_what_happens_without_losing_the_focus() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(f"{console.origin}/topics/order.paid/groups/analytics")
        link = page.locator("#live a").first
        has_link = await link.count() > 0
        if has_link:
            await link.focus()
        async with connect(console.url) as mq:
            await mq.send_many("order.paid", [b"more"] * 100)
            await page.get_by_text("adds up to 2,108").wait_for()
            await mq.admin.set_group("order.paid", "analytics", paused=True)
            await page.get_by_text("It is paused: 2,108 messages wait").wait_for()

        if has_link:
            assert await page.evaluate("document.activeElement.tagName") == "A"


async def test_dead_letters_after_a_bad_deploy() -> None:
    """Choose a kind of error, see what would happen, send again: each letter once."""
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(f"{console.origin}/dead/billing")
        await page.get_by_role("link", name="ValueError: order … has no amount").click()
        await page.get_by_role("button", name="Send again …").click()
        preview = await page.locator("main").inner_text()
        await page.get_by_role("button", name="Send again").click()
        done = await page.locator("main").inner_text()

        assert "10 messages would be sent again, to group billing alone" in preview
        assert "10 of 10 sent again, 0 not" in done

        async def sent() -> bool:
            async with connect(console.url) as mq:
                lanes = await mq.admin.groups("order.paid", "billing")
                return sum(lane.ledger.ready for lane in lanes) == 1_608 + 10

        await until(sent, "the letters are ready again")


async def test_what_cannot_be_undone_wants_its_name() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        await page.goto(f"{console.origin}/topics/order.shipped")
        await page.get_by_role("button", name="Delete topic").click()
        button = page.get_by_role("button", name="Delete topic")
        assert await button.is_disabled()
        await page.get_by_label("This cannot be undone").fill("order.shipped")
        await button.click()
        await page.get_by_text("are deleted for good").wait_for()

        async with connect(console.url) as mq:
            assert "order.shipped" not in [topic.name for topic in await mq.admin.topics()]


async def test_hostile_texts_run_nothing() -> None:
    async with seeded(listens=True, large=False) as console, browsing() as page:
        for path in (
            "/topics/order.paid/messages?order=oldest",
            f"/m/{console.ids['body-1']}",
            "/dead/billing",
            "/search?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        ):
            await page.goto(console.origin + path)
            assert await page.locator("script:not([src])").count() == 0
