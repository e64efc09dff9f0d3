"""What a page shows or does, said in three other languages: command line, curl, Python."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from ternmq.api.actions import OrderedAction


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyAs:
    """One command in each way; empty: there is no such way."""

    cli: str = ""
    curl: str = ""
    python: str = ""

    def each(self) -> list[tuple[str, str]]:
        ways = (("CLI", self.cli), ("curl", self.curl), ("Python", self.python))
        return [(name, text) for name, text in ways if text]


def curl_get(origin: str, path: str, query: Mapping[str, str] | None = None) -> str:
    asked = urlencode({name: value for name, value in (query or {}).items() if value})
    url = f"{origin}/api/v1{path}" + (f"?{asked}" if asked else "")
    return f"curl -s {shlex.quote(url)}"


def action_as(action: OrderedAction, arguments: Mapping[str, str], origin: str, url: str) -> CopyAs:
    """An action with these arguments."""
    import msgspec

    quoted = {name: shlex.quote(value) for name, value in arguments.items()}
    if "ids" in arguments:
        ids = arguments["ids"].replace(",", " ").split()
        joint = " --id " if "--id" in action.cli else " "
        quoted["ids"] = joint.join(shlex.quote(id) for id in ids)
    cli = action.cli.format_map(ArgumentTexts(quoted)) + f" --url {shlex.quote(url)}"
    body = {name: value for name, value in arguments.items() if value}
    data = shlex.quote(msgspec.json.encode(body).decode())
    curl = (
        f"curl -s {shlex.quote(f'{origin}/api/v1/actions/{action.name}')} "
        f"-H 'Content-Type: application/json' -d {data}"
    )
    return CopyAs(cli=cli, curl=curl)


class ArgumentTexts(dict[str, str]):
    """Arguments that were not given are shown by their names."""

    def __missing__(self, name: str) -> str:
        return name.upper()
