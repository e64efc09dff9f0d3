"""What the disks of one broker group must have in common at the end of a run."""

from collections.abc import Iterator
from pathlib import Path

from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.storage.consume.batch_scan import MessageFormat
from tests.simulation.world.machine import Machine

LOGS = ("message", "pull")


def check_members(machines: list[Machine], flips: set[tuple[str, str, int]]) -> None:
    """All members have the same bytes wherever they have any, except where a bit was turned over;
    the shortest has what was safe."""
    for log in LOGS:
        kept = [(machine.name, *_log(machine, log)) for machine in machines]
        first = max(start for _, start, _ in kept)
        # Room for more is no part of a log.
        end = min(start + len(data.rstrip(b"\0")) for _, start, data in kept)
        name, start, reference = kept[0]
        for other, other_start, data in kept[1:]:
            here = reference[first - start : end - start]
            there = data[first - other_start : end - other_start]
            if here == there:
                continue
            for at, (one, another) in enumerate(zip(here, there, strict=True), first):
                flipped = (name, log, at) in flips or (other, log, at) in flips
                assert one == another or flipped, (
                    f"{log} log of {name} and {other} differ at offset {at}"
                )


def bodies_without_name(machines: list[Machine], topic_ids: set[int]) -> set[bytes]:
    """Bodies of stored messages whose topics are none of these: a registry forgot them."""
    return {
        body
        for machine in machines
        for view in _batches(machine)
        if view.topic_id not in topic_ids
        for body in view.bodies()
    }


def _batches(machine: Machine) -> Iterator[BatchView]:
    """What lies in the message log of a member, up to a torn end."""
    start, content = _log(machine, "message")
    data, at, form = memoryview(content), 0, MessageFormat()
    while at < len(data):
        try:
            size = form.size(data[at:])
            form.check(data[at : at + size], start + at)
        except Corrupt:
            return
        yield BatchView(data[at : at + size])
        at += size


def _log(machine: Machine, log: str) -> tuple[int, bytes]:
    """Where a log begins, and all of its bytes."""
    folder = Path("/") / machine.name / "broker" / log
    start, content = 0, b""
    assert machine.disk.exists(folder), f"{machine.name} is in step and has no {log} log"
    for name in machine.disk.names(folder):
        if name.endswith(".log"):
            base = int(name.removesuffix(".log"))
            if not content:
                start = base
            content = content[: base - start] + machine.disk.read(folder / name)
    return start, content
