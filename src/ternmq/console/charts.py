"""Charts as SVG text: spark lines, ledger bars, columns, a timeline. Pure.

Drawn by the server, so they are there without a script, can be tested as text, and take their
colours from classes in the style sheet, light and dark. Each says in words what it shows (`role`
and `aria-label`): never colour alone. All text goes through `markupsafe`, as others wrote some.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from ternmq.console.formats import duration, moment, number, rate, share, short

BAR_WIDTH = 1_000
TOP = 20
"""Above a chart, for the half of a text that stands there."""
SLIVER = 4
"""What is there is seen, however little it is."""

WORDS = {
    "ready": "ready",
    "in_flight": "in flight",
    "waiting_retry": "waiting",
    "dead": "dead",
    "acked": "acked",
    "filtered": "filtered",
    "skipped": "skipped",
    "expired": "expired",
}
WHOLE = ("acked", "filtered", "skipped", "expired", "dead", "waiting_retry", "in_flight", "ready")
OPEN = ("ready", "in_flight", "waiting_retry", "dead")


def spark(
    values: Sequence[float], *, width: int = 120, height: int = 28, label: str = ""
) -> Markup:
    """A line without axes."""
    points = list(values)[-width:]
    if len(points) < 2:
        points = [*points, *points] or [0.0, 0.0]
    top = max(*points, 1e-9)
    step = width / (len(points) - 1)
    inner = height - 4
    line = [
        f"{at * step:.1f},{2 + inner - inner * max(0.0, y) / top:.1f}"
        for at, y in enumerate(points)
    ]
    area = f"0,{height} {' '.join(line)} {width},{height}"
    words = label or f"last {short(points[-1])}, highest {short(top if top > 1e-9 else 0)}"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {width} {height}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(words)}"><polygon class="spark-area" points="{area}"/>'
        f'<polyline class="spark-line" points="{" ".join(line)}"/></svg>'
    )


def flow_chart(
    series: Mapping[str, Sequence[float]], *, from_ms: int, to_ms: int, height: int = 180
) -> Markup:
    """Lines of rates over time with a scale."""
    width, left = 900, 92
    top = nice_top(max((max(values, default=0.0) for values in series.values()), default=0.0))
    plot = height - TOP - 28
    parts: list[str] = []
    for share_of in (0.0, 0.5, 1.0):
        y = TOP + plot * (1 - share_of)
        parts.append(f'<line class="grid" x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(short(top * share_of))}</text>"
        )
    for name, values in series.items():
        points = _points(values, left, width, plot, top)
        parts.append(f'<polyline class="line line-{escape(name)}" points="{points}"/>')
    ages = (("start", left, to_ms - from_ms), ("end", width, 0))
    for anchor, x, age in ages:
        words = f"{duration(age)} ago" if age else "now"
        parts.append(
            f'<text class="tick" x="{x}" y="{height - 4}" text-anchor="{anchor}">{words}</text>'
        )
    now = ", ".join(f"{name} {rate(values[-1])}" for name, values in series.items() if values)
    return Markup(
        f'<svg class="flow" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="messages a second: {escape(now)}">{"".join(parts)}</svg>'
    )


def _points(values: Sequence[float], left: int, width: int, plot: int, top: float) -> str:
    points = list(values)
    if len(points) == 1:
        points *= 2
    step = (width - left) / max(1, len(points) - 1)
    return " ".join(
        f"{left + at * step:.1f},{TOP + plot * (1 - max(0.0, y) / top):.1f}"
        for at, y in enumerate(points)
    )


def nice_top(value: float) -> float:
    """A round number that is at least as large: 1, 2 or 5 times a power of ten."""
    top = 1.0
    while True:
        for factor in (1, 2, 5):
            if value <= top * factor:
                return top * factor
        top *= 10


def ledger_bars(counts: Mapping[str, int], total: int) -> Markup:
    """Two rows: the whole line, and below it what is open, for there the slivers are."""
    whole = _bar({state: counts[state] for state in WHOLE}, total, "all messages")
    opened = {state: counts[state] for state in OPEN}
    zoom = _bar(opened, sum(opened.values()), "open messages")
    return Markup('<div class="ledger">{}{}</div>').format(whole, zoom)


def _bar(counts: Mapping[str, int], total: int, what: str) -> Markup:
    there = {state: count for state, count in counts.items() if count > 0}
    words = ", ".join(f"{number(count)} {WORDS[state]}" for state, count in there.items())
    parts: list[str] = []
    at = 0.0
    for state, wide in zip(there, bar_widths(list(there.values()), BAR_WIDTH), strict=True):
        title = f"{WORDS[state]}: {number(there[state])} ({share(there[state], total)})"
        parts.append(
            f'<rect class="state-{state}" x="{at:.1f}" width="{wide:.1f}" height="10">'
            f"<title>{escape(title)}</title></rect>"
        )
        at += wide
    return Markup(
        f'<svg class="bar" viewBox="0 0 {BAR_WIDTH} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(what)}: {escape(words or "none")}">{"".join(parts)}</svg>'
    )


def bar_widths(counts: Sequence[int], width: int) -> list[float]:
    """Shares of a bar; none that is there is narrower than a sliver."""
    total = sum(counts)
    if not total:
        return []
    wide = [max(SLIVER, width * count / total) for count in counts]
    scale = width / sum(wide)
    return [each * scale for each in wide]


def columns(
    values: Sequence[tuple[int, int]], *, step_ms: int, from_ms: int, count: int, base: str = ""
) -> Markup:
    """How many in each stretch of time, as columns; each is a link where `base` is given."""
    width, height, gap = 900, 120, 2
    first = from_ms - from_ms % step_ms
    found = {first + at * step_ms: 0 for at in range(count)}
    for at_ms, amount in values:
        slot = at_ms - at_ms % step_ms
        if slot in found:
            found[slot] += amount
    top = nice_top(max(found.values(), default=0))
    each = width / max(1, count)
    parts: list[str] = []
    for place, (at_ms, amount) in enumerate(found.items()):
        tall = max(2.0, 92 * amount / top) if amount else 0.0
        title = f"{number(amount)} from {moment(at_ms)[:16]} UTC"
        x = place * each
        rect = (
            f'<rect class="column" x="{x + gap / 2:.1f}" y="{96 - tall:.1f}" '
            f'width="{max(1.0, each - gap):.1f}" height="{tall:.1f}">'
            f"<title>{escape(title)}</title></rect>"
        )
        if base and amount:
            href = f"{base}from={at_ms}&amp;to={at_ms + step_ms}"
            rect = f'<a href="{href}" aria-label="{escape(title)}">{rect}</a>'
        parts.append(rect)
        if place % max(1, count // 6) == 0:
            words = moment(at_ms)[5:16]
            parts.append(f'<text class="tick" x="{x:.1f}" y="114">{words}</text>')
    parts.append(f'<text class="tick" x="{width}" y="12" text-anchor="end">{short(top)}</text>')
    line = f'<line class="grid" x1="0" x2="{width}" y1="96" y2="96"/>'
    total = number(sum(found.values()))
    role = "group" if base else "img"
    return Markup(
        f'<svg class="columns" viewBox="0 0 {width} {height}" role="{role}" '
        f'aria-label="{total} messages by time">{line}{"".join(parts)}</svg>'
    )


def spread(bounds_s: Sequence[float], counts: Sequence[int], *, label: str) -> Markup:
    """How many took how long, as columns: those buckets that have any, and all between them."""
    there = [at for at, count in enumerate(counts) if count]
    if not there:
        return Markup("")
    shown = range(there[0], there[-1] + 1)
    width, height, each = 440, 84, min(64.0, 440 / len(shown))
    top, parts = max(counts), list[str]()
    for place, at in enumerate(shown):
        ends = at < len(bounds_s)
        words = f"≤ {brief_time(bounds_s[at])}" if ends else f"> {brief_time(bounds_s[-1])}"
        tall = max(2.0, 60 * counts[at] / top) if counts[at] else 0.0
        x = place * each
        parts.append(
            f'<rect class="column" x="{x + 1:.1f}" y="{64 - tall:.1f}" width="{each - 2:.1f}" '
            f'height="{tall:.1f}"><title>{escape(words)}: {number(counts[at])}</title></rect>'
        )
        if place % -(-len(shown) // 8) == 0:
            parts.append(f'<text class="tick" x="{x + 1:.1f}" y="79">{escape(words)}</text>')
    line = f'<line class="grid" x1="0" x2="{width}" y1="64" y2="64"/>'
    return Markup(
        f'<svg class="spread" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">{line}{"".join(parts)}</svg>'
    )


def brief_time(seconds: float) -> str:
    """In one unit: 5 ms, 2.5 s, 30 min."""
    for factor, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"


def share_bar(part: float, whole: float, label: str) -> Markup:
    """A share that is neither good nor bad."""
    full = 100 * part / whole if whole else 0.0
    return Markup(
        f'<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}"><rect class="gauge-back" width="100" height="6"/>'
        f'<rect class="column" width="{min(100.0, full):.1f}" height="6"/></svg>'
    )


def gauge(part: float, whole: float, label: str) -> Markup:
    """A share as one bar."""
    full = 100 * part / whole if whole else 0.0
    level = "bad" if full > 90 else "warn" if full > 80 else "good"
    return Markup(
        f'<svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}"><rect class="gauge-back" width="100" height="6"/>'
        f'<rect class="gauge-{level}" width="{min(100.0, full):.1f}" height="6"/></svg>'
    )
