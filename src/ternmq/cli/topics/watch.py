"""Shows a result once, or again every second; and figures for people."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ternmq.cli.terminal.options import use
from ternmq.cli.terminal.output import clear_screen, flush, size
from ternmq.cli.terminal.partial_answers import end_incomplete, note_missing
from ternmq.wire.messages.stats import Rates

if TYPE_CHECKING:
    from ternmq.client.admin.admin import Admin
    from ternmq.client.client import Client
    from ternmq.client.inspection.times import TimeSpread

EVERY_S = 1.0

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again every second; Ctrl-C ends it.")
]

T = TypeVar("T")


def show_again(
    url: str, look: "Callable[[Admin], Awaitable[T]]", show: Callable[[T], None], *, watch: bool
) -> None:
    """Ask and show; with `watch` for ever, on a terminal always at the same place. Broker groups
    that do not answer are named."""

    async def job(mq: "Client") -> None:
        while True:
            admin = mq.admin.tolerant()
            seen = await look(admin)
            if watch and sys.stdout.isatty():
                clear_screen()
            show(seen)
            if not watch:
                end_incomplete(admin.missing)
                return
            note_missing(admin.missing)
            flush()
            await asyncio.sleep(EVERY_S)

    use(url, job)


def shown_rates(rates: Rates) -> str:
    """`12.0/s 1.2 KiB/s (10 s), 3.1/s 310 B/s (60 s)`."""
    return (
        f"{rates.messages_10s}/s {size(int(rates.bytes_10s))}/s (10 s), "
        f"{rates.messages_60s}/s {size(int(rates.bytes_60s))}/s (60 s)"
    )


def shown_age(age_ms: int) -> str:
    if age_ms < 0:
        return "age not known"
    return f"oldest {age_ms / 1000:.1f} s" if age_ms < 120_000 else f"oldest {age_ms // 60_000} min"


def shown_times(lately: "TimeSpread", ever: "TimeSpread") -> str:
    """`half within 5 ms, 99 % within 1.20 s (310 messages, last minutes)`."""
    seen = lately if lately.rows else ever
    if not seen.rows:
        return "-"
    since = "last minutes" if lately.rows else "since the broker started"
    half, most = (_seconds(seen.within(share) or 0.0) for share in (0.5, 0.99))
    return f"half within {half}, 99 % within {most} ({seen.rows} messages, {since})"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.2f} s" if value < 120 else f"{value / 60:.0f} min"
