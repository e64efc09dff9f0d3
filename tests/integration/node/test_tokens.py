"""Tokens of a real node: by the command line, in the client, across their ends, and revoked."""

import asyncio
import stat
from pathlib import Path

import pytest

import ternmq
from ternmq.core.errors import Forbidden, Unauthorized
from tests.integration.node.test_access import ON, admin_password, user_url
from tests.integration.processes import NodeFactory, tern

WITHIN_S = 1.0


async def test_a_token_by_the_command_line_sends_over_its_end_and_is_revoked(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Nothing is lost while the file is replaced and the first token ends."""
    node = node_factory(environment=ON)
    admin, password = user_url(node, "admin"), admin_password(node)

    def run(*words: str) -> str:
        return tern(*words, url=admin, password=password).out

    def work() -> None:
        run("topic", "create", "orders")
        run("user", "add", "shop", "--no-password")
        run("grant", "add", "shop", "publish", "orders")
        run("grant", "add", "shop", "read", "orders")
        run("token", "create", "shop", "--expires", "4s", "--file", str(file))

    file = tmp_path / "token"
    await asyncio.to_thread(work)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = file.read_text()
    loop = asyncio.get_running_loop()
    began = loop.time()
    url, sent = user_url(node, "shop"), 0
    async with ternmq.connect(url, token_file=file) as mq:
        await mq.send("orders", b"0")
        narrow = ("--narrow", "publish orders", "--expires", "1h")
        await asyncio.to_thread(run, "token", "create", "shop", *narrow, "--file", str(file))
        while loop.time() < began + 5.5:
            sent += 1
            await mq.send("orders", str(sent).encode())
            await asyncio.sleep(0.02)
        with pytest.raises(Unauthorized, match="has ended"):
            async with ternmq.connect(url, token=first.strip()):
                pass
        async with ternmq.connect(admin, password=password) as owner:
            assert await _count(owner) == sent + 1
            async with ternmq.connect(url, token_file=file) as narrowed:
                with pytest.raises(Forbidden):
                    await _count(narrowed)
            [token] = [each for each in await owner.admin.tokens("shop") if each.narrow]
            listed = await asyncio.to_thread(run, "token", "list", "shop")
            assert token.id in listed
            assert "publish topic:orders" in listed
            assert file.read_text().strip() not in listed
            revoked_at = loop.time()
            await owner.admin.revoke_tokens("shop", token.id)
            with pytest.raises(Unauthorized):
                while loop.time() < revoked_at + 30:
                    await mq.send("orders", b"late")
            assert loop.time() - revoked_at < WITHIN_S + 1.0
    written = b"".join(each.read_bytes() for each in node.output_dir.iterdir() if each.is_file())
    assert first.strip().encode() not in written


async def _count(mq: ternmq.Client) -> int:
    return len([message async for message in mq.read("orders")])
