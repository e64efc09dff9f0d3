"""Draws the bars of docs/benchmarks.md from the newest result of `make bench`.

    python scripts/make_benchmark_pictures.py [--check]

One SVG per workload: every peer's rate, or its p50 and p99. Plain text in, plain SVG out, no
library; the same result gives the same bytes, so `--check` can say whether pictures are old.
"""

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WIDTH, NAME_WIDTH, VALUE_WIDTH, BAR, GAP, TOP = 720, 150, 130, 18, 8, 44
OURS, THEIRS, TAIL = "#0f766e", "#94a3b8", "#cbd5e1"


class Picture(NamedTuple):
    """One file: which workload it shows, by which field."""

    file: str
    workload: str
    title: str
    unit: str = "messages/s"


PICTURES = (
    Picture("benchmarks-publish.svg", "publish", "Publish in lists, one client"),
    Picture("benchmarks-single.svg", "single, 1 caller", "One message at a time: p50, p99", "ms"),
    Picture("benchmarks-callers.svg", "single, 64 callers", "64 callers, one message each"),
    Picture("benchmarks-consume.svg", "consume one by one", "Consume and ack one by one"),
    Picture("benchmarks-latency.svg", "latency at 10 k/s", "From send to handler: p50, p99", "ms"),
)


def newest() -> tuple[str, dict[str, Any]]:
    """Its name and content."""
    path = max(RESULTS.glob("*.json"))
    return path.name, json.loads(path.read_text(encoding="utf-8"))


def draw(picture: Picture, results: list[dict[str, Any]], source: str) -> str:
    """Bars, the best first; a p99 is drawn pale behind its p50."""
    rows: list[tuple[str, float, float | None]] = []
    for one in results:
        value = one["p50_ms"] if picture.unit == "ms" else one["rate"]
        if one["workload"] == picture.workload and value:
            rows.append((one["name"], value, one["p99_ms"] if picture.unit == "ms" else None))
    rows.sort(key=lambda row: row[1], reverse=picture.unit != "ms")
    longest = max((tail or value for _, value, tail in rows), default=1.0)
    scale = (WIDTH - NAME_WIDTH - VALUE_WIDTH) / longest
    height = TOP + len(rows) * (BAR + GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="13">',
        f"<title>{escape(picture.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(picture.title)}</text>',
        f'<text x="8" y="34" font-size="11" fill="#64748b">{escape(source)}</text>',
    ]
    for number, (name, value, tail) in enumerate(rows):
        y = TOP + number * (BAR + GAP)
        colour = OURS if name.startswith("ternmq") else THEIRS
        shown = f"{value:,.0f}/s" if tail is None else f"{value:.2f} / {tail:.2f} ms"
        lines.append(f'<text x="8" y="{y + 14}">{escape(name)}</text>')
        if tail is not None:
            lines.append(_bar(y, tail * scale, TAIL))
        lines.append(_bar(y, value * scale, colour))
        end = NAME_WIDTH + (tail or value) * scale + 6
        lines.append(f'<text x="{end:.0f}" y="{y + 14}">{shown}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bar(y: int, width: float, colour: str) -> str:
    return (
        f'<rect x="{NAME_WIDTH}" y="{y}" width="{max(1.0, width):.1f}" height="{BAR}" '
        f'fill="{colour}"/>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a picture is old")
    options = parser.parse_args()
    name, content = newest()
    machine = content["machine"]
    source = (
        f"{name}: {machine['cores']} cores, {machine['file_system']}, load {machine['load_1_min']}"
    )
    for picture in PICTURES:
        path = ROOT / "docs" / picture.file
        drawn = draw(picture, content["results"], source)
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != drawn:
                raise SystemExit(f"docs/{picture.file} is old: run {Path(__file__).name}")
        else:
            path.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
