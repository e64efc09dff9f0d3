"""Every command that shows what others wrote, with ESC, CR, C1 and bidi marks in all of it (M2)."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.rpc.connection import Connection
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from tests.integration.processes import Node, NodeFactory, Ran, tern

HOSTILE = "\x1b]0;mine\x07\r\u202e\x9b2J\u2066"
BAD = set("\x1b\x07\r\u202e\x9b\u2066")


async def _write(url: str) -> str:
    """Everything that a client can put somewhere; returns the id of a message."""
    async with ternmq.connect(url, app="shop") as mq:
        sent = await mq.send(
            "orders",
            HOSTILE.encode(),
            key=HOSTILE,
            tag=HOSTILE,
            order_key=HOSTILE,
            properties={HOSTILE: HOSTILE},
        )
        await mq.send("orders", HOSTILE.encode(), key=HOSTILE, delay=3600)
        await mq.send("later", HOSTILE.encode(), key=HOSTILE, delay=3600)
        async with mq.consumer("orders", group="g", start="earliest") as consumer:
            async for message in consumer:
                await message.reject(HOSTILE)
                break
    return sent.id


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    factory = NodeFactory(tmp_path_factory.mktemp("hostile"))
    patch = pytest.MonkeyPatch()
    try:
        node = factory()
        patch.setattr(socket, "gethostname", lambda: HOSTILE)
        message_id = asyncio.run(_write(node.url))
        with (
            ternmq.sync.connect(node.url, app="shop") as mq,
            mq.consumer("orders", group="g", start="earliest"),
        ):  # Its host is shown.
            yield node, message_id
    finally:
        patch.undo()
        factory.finish()


SHOWN = [
    ("browse", "orders"),
    ("browse", "orders", "--json"),
    ("browse", "%dead.g"),
    ("find", "--topic", "orders", "--key", HOSTILE),
    ("find", "--topic", "orders", "--key", HOSTILE, "--json"),
    ("find", "--id", "ID"),
    ("group", "list", "orders"),
    ("group", "show", "orders", "g"),
    ("group", "show", "orders", "g", "--json"),
    ("dead", "list", "g"),
    ("dead", "list", "g", "--json"),
    ("delay", "list", "--topic", "orders"),
    ("delay", "list", "--topic", "later", "--json"),
    ("topic", "list"),
    ("topic", "show", "orders"),
    ("ledger",),
    ("ledger", "orders", "--json"),
    ("broker", "list"),
    ("doctor",),
    ("consume", "orders", "--group", "fresh", "--count", "1", "--format", "json"),
]
REFUSED = [
    ("topic", "show", HOSTILE),
    ("topic", "create", HOSTILE),
    ("group", "show", "orders", HOSTILE),
    ("browse", HOSTILE),
    ("delay", "list", "--topic", HOSTILE),
    ("send", HOSTILE, "x"),
    ("find", "--id", HOSTILE),
]


@pytest.mark.parametrize(
    "command", [*SHOWN, *REFUSED], ids=lambda words: " ".join(map(ascii, words))
)
def test_nothing_that_others_wrote_drives_a_terminal(
    hostile: tuple[Node, str], command: tuple[str, ...]
) -> None:
    node, message_id = hostile
    words = [message_id if word == "ID" else word for word in command]
    ran = tern(*words, url=node.url, code=None)

    assert not BAD & set(ran.out + ran.err), ascii(ran.out + ran.err)
    assert "Traceback" not in ran.err
    assert command not in SHOWN or (ran.code == 0 and ran.out), ran


def test_what_was_hostile_is_there_to_be_seen(hostile: tuple[Node, str]) -> None:
    """Else the test above would look at nothing."""
    node, _ = hostile
    for command in (
        ("browse", "orders"),
        ("delay", "list", "--topic", "later"),
        ("dead", "list", "g"),
        ("group", "show", "orders", "g"),
    ):
        assert "\\x1b]0;mine" in tern(*command, url=node.url).out, command


def test_json_reads_as_what_was_written(hostile: tuple[Node, str]) -> None:
    node, _ = hostile
    ran: Ran = tern("browse", "orders", "--json", url=node.url)
    keys = [json.loads(line)["key"] for line in ran.out.splitlines()]
    assert HOSTILE in keys


def test_a_name_that_drives_a_terminal_is_in_no_log(node: Node, tmp_path: Path) -> None:
    with pytest.raises(ternmq.BadName):
        asyncio.run(_greet(node))

    assert not BAD & set(node.stderr_text())


async def _greet(node: Node) -> None:
    hello = Hello(protocol=PROTOCOL_VERSION, app=HOSTILE, version=HOSTILE, session=bytes(16))
    await Connection.open(f"127.0.0.1:{node.port + 1}", hello, timeout=5)
