"""The trace as one HTML page that needs nothing else: tables, and charts drawn as SVG.

Pure: rows in, text out. Everything that came from outside is escaped. Works from a mail attachment,
without a network, and prints.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

WIDTH, HEIGHT, PAD = 860, 220, 46
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d")
LINES_MAX = len(COLOURS)
TraceRow = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --ink:#1f2937; --soft:#6b7280; --line:#e5e7eb; --page:#fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink:#e5e7eb; --soft:#9ca3af; --line:#374151; --page:#111827; }
}
body { font: 15px/1.5 system-ui, sans-serif; color:var(--ink); background:var(--page);
       max-width:920px; margin:2rem auto; padding:0 1rem; }
h1 { margin-bottom:0; } h2 { margin-top:2.2rem; border-bottom:1px solid var(--line); }
p.note { color:var(--soft); } .wide { overflow-x:auto; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
th, td { padding:.25rem .7rem; border-bottom:1px solid var(--line); text-align:right;
         white-space:nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align:left; }
svg text { fill:var(--soft); font-size:11px; } svg line { stroke:var(--line); }
.bad { color:#dc2626; font-weight:600; } .good { color:#059669; }
"""


def page(title: str, subtitle: str, tables: Mapping[str, Sequence[TraceRow]]) -> str:
    """The whole report; `tables` as `trace` makes them."""
    audit = tables["audit"]
    missing = sum(row["never_acked"] for row in audit)
    verdict = (
        '<p class="good">Every stored message is settled by every group.</p>'
        if not missing
        else f'<p class="bad">{missing:,} deliveries are still owed: stored and not settled.</p>'
    )
    parts = [
        verdict,
        _section("Audit: stored and not settled", audit, "as the ledger counts them"),
        _section("Deliveries", [_counts(row) for row in tables["latency"]], "per group"),
        _section("Latency in milliseconds", _steps(tables["latency"]), LATENCY_NOTE),
        "<h2>Stored messages per minute</h2>",
        chart(tables["throughput"], "messages", ("topic",)),
        "<h2>Backlog</h2>",
        chart(tables["backlog"], "backlog", ("topic", "group")),
        _section("Deliveries per message", tables["attempts"], "1 is what you want"),
        _section("Stored twice", tables["doubles"], "the same id more than once"),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f'<h1>{escape(title)}</h1><p class="note">{escape(subtitle)}</p>{"".join(parts)}</html>'
    )


LATENCY_NOTE = (
    "send: made to stored; wait: stored to first handed out; handle: handed out to acked; total"
)


def _counts(row: TraceRow) -> TraceRow:
    return {name: value for name, value in row.items() if not name.endswith("_ms")}


def _steps(rows: Sequence[TraceRow]) -> list[TraceRow]:
    """One line for each step: wide tables are hard to read."""
    return [
        {"topic": row["topic"], "group": row["group"], "step": step}
        | {share: row[f"{step}_{share}_ms"] for share in ("p50", "p90", "p99", "p999")}
        for row in rows
        for step in ("send", "wait", "handle", "total")
    ]


def table(rows: Sequence[TraceRow]) -> str:
    if not rows:
        return '<p class="note">nothing</p>'
    names = list(rows[0])
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def chart(rows: Sequence[TraceRow], value: str, names: Sequence[str]) -> str:
    """One line for each series over the minutes, the largest ones first."""
    series: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in rows:
        series[" / ".join(str(row[name]) for name in names)][row["minute"]] = float(row[value])
    if not series:
        return '<p class="note">nothing</p>'
    chosen = sorted(series, key=lambda name: -max(series[name].values()))[:LINES_MAX]
    moments = sorted({at for name in chosen for at in series[name]})
    top = max(1.0, max(max(series[name].values()) for name in chosen))
    begin, end = moments[0].timestamp(), max(moments[-1].timestamp(), moments[0].timestamp() + 60)

    def x(at: datetime) -> float:
        return PAD + (WIDTH - 2 * PAD) * (at.timestamp() - begin) / (end - begin)

    def y(number: float) -> float:
        return HEIGHT - PAD / 2 - (HEIGHT - PAD) * max(0.0, number) / top

    drawn = [
        f'<line x1="{PAD}" x2="{WIDTH - PAD}" y1="{y(part):.1f}" y2="{y(part):.1f}"/>'
        f'<text x="4" y="{y(part) + 4:.1f}">{part:,.0f}</text>'
        for part in (0.0, top / 2, top)
    ]
    legend = []
    for name, colour in zip(chosen, COLOURS, strict=False):
        points = [(x(at), y(series[name][at])) for at in sorted(series[name])]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        dots = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2" fill="{colour}"/>' for a, b in points
        )
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'
        )
        legend.append(f'<span style="color:{colour}">&#9632;</span> {escape(name)}')
    drawn.append(f'<text x="{PAD}" y="{HEIGHT - 2}">{moments[0]:%Y-%m-%d %H:%M}</text>')
    drawn.append(
        f'<text x="{WIDTH - PAD}" y="{HEIGHT - 2}" text-anchor="end">{moments[-1]:%H:%M}</text>'
    )
    left_out = f" and {len(series) - len(chosen)} smaller ones" if len(series) > len(chosen) else ""
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(drawn)}</svg>'
        f'<p class="note">{" &nbsp; ".join(legend)}{left_out}</p>'
    )


def _section(title: str, rows: Sequence[TraceRow], note: str) -> str:
    return f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{table(rows)}'


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(each) for each in value)
    return str(value)
