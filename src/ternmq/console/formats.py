"""Numbers, sizes, times and ages as people read them: always with a unit. Pure.

Times are relative with the exact one beside it; "now" is the server's, never the browser's.
"""

from datetime import UTC, datetime

from ternmq.client.model.times import time_from_ms

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def number(value: float) -> str:
    """1,234,567; fractions only where they say something."""
    if isinstance(value, float) and not value.is_integer() and abs(value) < 100:
        return f"{value:,.1f}"
    return f"{round(value):,}"


def short(value: float) -> str:
    """1.2 M: for places that are small."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            scaled = value / (factor if unit != "k" else 1e3)
            return f"{scaled:.1f} {unit}" if scaled < 100 else f"{scaled:.0f} {unit}"
    return number(value)


def rate(value: float) -> str:
    return f"{short(round(value, 1))}/s"


def size(value: float) -> str:
    for factor, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{round(value)} B"


def duration(ms: float) -> str:
    """The two largest units: 3 min 20 s."""
    left = max(0, int(ms))
    if left < 1_000:
        return f"{left} ms"
    parts: list[str] = []
    for factor, unit in _STEPS:
        count, left = divmod(left, factor)
        if count:
            parts.append(f"{count} {unit}")
        if parts and (len(parts) == 2 or not count):
            break
    return " ".join(parts[:2])


def moment(ms: int) -> str:
    """The exact time, UTC."""
    return time_from_ms(ms).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def iso(at: datetime | int) -> str:
    """For programs."""
    exact = time_from_ms(at) if isinstance(at, int) else at
    return exact.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(ms: int, now_ms: int) -> str:
    """How long ago, or in how long."""
    away = now_ms - ms
    if abs(away) < 1_000:
        return "now"
    return f"{duration(away)} ago" if away > 0 else f"in {duration(-away)}"


def share(part: float, whole: float) -> str:
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if percent < 10 or 90 < percent < 100 else f"{percent:.0f} %"


def plural(count: int, word: str) -> str:
    return f"{number(count)} {word}" if count == 1 else f"{number(count)} {word}s"
