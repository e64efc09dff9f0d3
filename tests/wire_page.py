"""The commands in docs/wire-protocol.md, which a tidy test holds to the code, and their records."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import NamedTuple

from ternmq import wire
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record

PAGE = Path(__file__).parents[1] / "docs" / "wire-protocol.md"
OF_THE_CONNECTION = {Command.HELLO, Command.PING, Command.AUTH}
_ROW = re.compile(
    r"^\| ([A-Z_]+) \| \d+ \| ([^|]*) \| ([^|]*) \|[^|]*\| ([a-z]+) \|$", re.MULTILINE
)


class CommandRow(NamedTuple):
    """One command: which servers answer it, the name of its request, and who may send it."""

    command: Command
    servers: frozenset[str]
    request: str
    action: str

    def asked_of(self, server: str) -> bool:
        return bool(self.servers & {server, "all"})


def command_rows() -> list[CommandRow]:
    found = [
        CommandRow(Command[name], frozenset(servers.strip().split(", ")), request.strip(), action)
        for name, servers, request, action in _ROW.findall(PAGE.read_text(encoding="utf-8"))
    ]
    assert len(found) > 50
    return found


def commands_of(server: str) -> set[Command]:
    """What the page says is asked of this kind of server, HELLO, AUTH and PING left out."""
    return {row.command for row in command_rows() if row.asked_of(server)} - OF_THE_CONNECTION


def records() -> dict[str, type[Record]]:
    """Everything that travels as msgpack, whichever room of `wire` it is in."""
    found: dict[str, type[Record]] = {}
    for module in pkgutil.walk_packages(wire.__path__, f"{wire.__name__}."):
        names = vars(importlib.import_module(module.name))
        kinds = {name: kind for name, kind in names.items() if isinstance(kind, type)}
        found |= {name: kind for name, kind in kinds.items() if issubclass(kind, Record)}
    del found["Record"]
    return found
