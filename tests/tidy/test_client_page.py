"""docs/client.md and docs/app.md name every option, error and public name of the client."""

import re

import pytest

import ternmq
from ternmq.client.app.subscriber import SubscriberOptions
from ternmq.client.client import Client
from ternmq.client.config import ConnectOptions
from ternmq.client.consuming.subscription_plan import ConsumerOptions
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.producing.send_buffer import Stats
from ternmq.client.reading.reader import ReadOptions
from ternmq.core.errors import ERRORS
from tests.tidy.source import ROOT

PAGE = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("client.md", "app.md")
)
ROW = re.compile(r"^\| (?:&nbsp;)*`(\w+)` \| `(\w+)` \| (yes|no) \|", re.MULTILINE)
UNNAMED = {"ask_before_cancel", "config", "cluster", "parts", "sender"} | {
    "stored",
    "finish",
}  # Not for applications.


def test_the_table_of_errors_is_the_tree() -> None:
    expected = {
        (error.__name__, code, "yes" if error.retryable else "no") for code, error in ERRORS.items()
    }

    assert set(ROW.findall(PAGE)) == expected


@pytest.mark.parametrize(
    "options",
    [ConnectOptions, SendOptions, ConsumerOptions, ReadOptions, SubscriberOptions],
    ids=lambda options: options.__name__,
)
def test_every_option_is_on_the_page(options: type) -> None:
    missing = [name for name in options.__annotations__ if f"`{name}`" not in PAGE]

    assert not missing


@pytest.mark.parametrize(
    "kind",
    [Client, Message, MessageBatch, Receipt, BatchReceipt, Stats, ternmq.Admin, ternmq.App],
    ids=lambda kind: kind.__name__,
)
def test_every_public_name_is_on_the_page(kind: type) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")} - UNNAMED
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", PAGE)]

    assert not missing
