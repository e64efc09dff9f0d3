"""`make walk`: print which files each journey crosses, in order, and one table of them all."""

import argparse
import asyncio

from benchmarks.walk.journeys import JOURNEYS, walk
from benchmarks.walk.trace import Trace

HEADS = ("walk", "calls", "functions", "files", "crossings", "in broker", "spine")


def main() -> None:
    options = argparse.ArgumentParser(prog="make walk", description=__doc__)
    options.add_argument("--only", action="append", choices=list(JOURNEYS), help="one of them")
    options.add_argument("--runs", type=int, default=7, help="the shortest of so many is shown")
    options.add_argument("--table", action="store_true", help="no lists of files")
    chosen = options.parse_args()
    found = asyncio.run(walk(chosen.only or list(JOURNEYS), runs=chosen.runs))
    if not chosen.table:
        for name, trace in found.items():
            print("\n".join(listing(name, trace)), end="\n\n")
    print("\n".join(table(found)))


def listing(name: str, trace: Trace) -> list[str]:
    """The files of one walk in order, with calls and CPU time; stars are on the spine."""
    width = max((len(file) for file in trace.files), default=0)
    about = (JOURNEYS[name].__doc__ or "").strip()
    lines = [f"{name}: {about}"]
    for number, line in enumerate(trace.lines, 1):
        star = "*" if line.file in trace.spine else " "
        what = f"{line.calls:>5} calls {line.microseconds:>8.0f} µs"
        lines.append(f"{number:>4} {star} {line.file:<{width}} {what}")
    if trace.spine:
        lines.append(f"     * the spine: {' → '.join(trace.spine)}")
    return lines


def table(found: dict[str, Trace]) -> list[str]:
    """One row for each walk, as a table of a document."""
    rows = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    for name, trace in found.items():
        cells = [name, *(str(figure or "-") for figure in figures(trace))]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def figures(trace: Trace) -> tuple[int, ...]:
    in_broker, spine = trace.under("broker"), len(trace.spine)
    files = len(trace.files)
    return len(trace.calls), trace.functions, files, trace.crossings, in_broker, spine


if __name__ == "__main__":
    main()
