"""docs/wire-protocol.md and the code say the same."""

import re
from pathlib import Path

import msgspec

from ternmq.core.errors import ERRORS
from ternmq.wire.frame import FRAME_SIZE_MAX
from ternmq.wire.messages.publish import PUBLISHED
from ternmq.wire.messages.pull import DELIVERED
from ternmq.wire.messages.replication import REPLICATE, REPLICATED
from ternmq.wire.numbers import Command
from tests.wire_page import records

PAGE = (Path(__file__).parents[2] / "docs" / "wire-protocol.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for row in rows[2:]
    ]


def test_every_command_is_there_with_its_number() -> None:
    written = {row[0]: int(row[1]) for row in table("Commands")}

    assert written == {command.name: command.value for command in Command}


def test_commands_name_messages_that_exist() -> None:
    known = {"nothing", "", "one batch", "PUBLISHED", "DELIVERED and envelopes"}
    known |= {"REPLICATE and bytes", "REPLICATED"}
    for row in table("Commands"):
        for cell in row[3:5]:
            word = re.split("[;,]", cell)[0]
            assert word in known or word in records(), cell


def test_every_message_is_there_with_its_fields_in_order() -> None:
    expected: dict[str, str] = {}
    for name, kind in records().items():
        fields = msgspec.structs.fields(kind)
        required = ", ".join(field.name for field in fields if field.required)
        optional = ", ".join(field.name for field in fields if not field.required)
        expected[name] = f"{required} | {optional}".strip() if optional else required

    assert {row[0]: row[1] for row in table("Messages")} == expected


def test_every_error_is_there_and_says_whether_retrying_helps() -> None:
    written = {row[0]: (row[1], row[2]) for row in table("Errors")}

    assert written == {
        code: (kind.__name__, "yes" if kind.retryable else "no") for code, kind in ERRORS.items()
    }


def test_sizes_on_the_page_are_those_of_the_code() -> None:
    assert f"{FRAME_SIZE_MAX:,}" in PAGE
    assert f"`PUBLISHED` ({PUBLISHED.size} bytes)" in PAGE
    assert f"`DELIVERED` ({DELIVERED.size} bytes)" in PAGE
    assert f"`REPLICATE` ({REPLICATE.size} bytes)" in PAGE
    assert f"`REPLICATED` ({REPLICATED.size} bytes)" in PAGE
