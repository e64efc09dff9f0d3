"""Logging in and working at a secured console in a real browser; axe finds nothing on its pages."""

from pathlib import Path

import pytest

from tests.integration.console.secured import PASSWORD, secured
from tests.integration.console.test_browser import BROWSER, LOOKS, browsing

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="chromium-headless-shell is not installed (make test-tools)"
)
PATHS = ("/access", "/access/reader", "/access/*", "/topics/order.paid")


async def test_a_person_logs_in_works_and_logs_out_by_hand(tmp_path: Path) -> None:
    """From a link to the login, back to the page that was wanted; a disabled button says why."""
    async with secured(tmp_path, listens=True) as console, browsing() as page:
        await page.goto(f"{console.origin}/topics/order.paid")
        await page.get_by_label("Name").fill("reader")
        await page.get_by_label("Password").fill("wrong horse battery")
        await page.keyboard.press("Enter")
        assert "is wrong" in await page.get_by_role("alert").inner_text()
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/topics/order.paid")

        pause = page.get_by_role("button", name="Pause sending")
        assert await pause.is_disabled()
        assert (
            await pause.get_attribute("title") == "You need the right to manage on topic order.paid"
        )
        await page.get_by_role("link", name="Messages", exact=True).click()
        await page.locator("main a.mono").first.click()
        await page.get_by_role("heading", name="Body").wait_for()
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login")
        await page.goto(f"{console.origin}/topics")
        assert "/login" in page.url


async def test_axe_finds_nothing_on_the_login_and_on_the_pages_about_users(tmp_path: Path) -> None:
    from axe_playwright_python.async_playwright import Axe

    async with secured(tmp_path, listens=True) as console, browsing() as page:
        for theme, width in LOOKS:
            await page.context.clear_cookies()
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            await page.set_viewport_size({"width": width, "height": 900})
            await page.goto(f"{console.origin}/login")
            await look(page, Axe(), theme, width, "/login")
            await page.get_by_label("Name").fill("boss")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"{console.origin}/")
            for path in PATHS:
                await page.goto(console.origin + path)
                await look(page, Axe(), theme, width, path)


async def look(page: object, axe: object, theme: str, width: int, path: str) -> None:
    found = (await axe.run(page)).response["violations"]  # type: ignore[attr-defined]
    names = [(each["id"], each["nodes"][0]["html"][:100]) for each in found]
    wide = await page.evaluate("document.documentElement.scrollWidth")  # type: ignore[attr-defined]
    assert (theme, width, path, names) == (theme, width, path, [])
    assert wide <= width, (path, wide)
