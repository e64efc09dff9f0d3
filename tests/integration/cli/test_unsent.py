"""`tern unsent`: what no broker stored is listed, sent again with its id, deleted (D10)."""

import asyncio
from pathlib import Path

import ternmq
from tests.integration.processes import NodeFactory, tern


def test_what_a_full_disk_refused_is_sent_again_by_a_person(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """D10: store failures are kept apart, on the producer's machine."""
    full = {"TERN_DISK_FREE_MIN": "1024GiB"}
    node = node_factory(environment=full)
    file = tmp_path / "unsent"

    async def send() -> None:
        async with ternmq.connect(node.url, app="shop", unsent=file) as mq:
            mq.send_many_nowait("orders", [b"1", b"2", b"3"])

    asyncio.run(send())
    first, second, third = tern("unsent", "list", str(file), "--json").json()
    assert [one["body"] for one in (first, second, third)] == ["1", "2", "3"]
    assert {one["code"] for one in (first, second, third)} == {"disk_full"}

    failed = tern("unsent", "resend", str(file), "--json", url=node.url, code=1)
    assert failed.json() == {"handled": 0, "left": 3}
    assert "stay in" in failed.err

    node.environment = {}
    node.restart()
    gone = tern("unsent", "delete", str(file), "--id", third["id"], "--yes", "--json")
    assert gone.json() == {"handled": 1, "left": 2}
    sent = tern("unsent", "resend", str(file), "--json", url=node.url)
    assert sent.json() == {"handled": 2, "left": 0}
    found = tern("browse", "orders", "--json", url=node.url).json_lines()
    assert [(one["id"], one["body"]) for one in found] == [(first["id"], "1"), (second["id"], "2")]
    unknown = tern("unsent", "resend", str(file), "--id", third["id"], url=node.url, code=2)
    assert "not in" in unknown.err


def test_what_is_refused_out_of_a_spool_is_kept_too(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """D6, D10: accepted by an earlier life of the producer, refused for good, waited for by
    nobody."""
    node = node_factory(auto_create=False)
    file, spool = tmp_path / "unsent", tmp_path / "spool"

    async def send(url: str, bodies: list[bytes]) -> None:
        async with ternmq.connect(
            url, app="shop", spool=spool, unsent=file, delivery_timeout=1
        ) as mq:
            for body in bodies:
                mq.send_nowait("orders", body, key="k")
            if not bodies:
                await mq.flush()

    asyncio.run(send("tern://127.0.0.1:1", [b"1", b"2"]))
    assert not file.exists(), "nobody was there: they are in the spool"
    asyncio.run(send(node.url, []))
    kept = tern("unsent", "list", str(file), "--json").json()
    assert [(one["body"], one["code"]) for one in kept] == [
        ("1", "topic_not_found"),
        ("2", "topic_not_found"),
    ]
    tern("topic", "create", "orders", url=node.url)
    tern("unsent", "resend", str(file), url=node.url)
    found = tern("browse", "orders", "--json", url=node.url).json_lines()
    assert [(one["id"], one["key"]) for one in found] == [(one["id"], "k") for one in kept]
