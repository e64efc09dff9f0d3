"""S4.9: no secret is in a log, an answer, an error, an argument or a file that is not for it."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ternmq
from ternmq.core.errors import TernError
from ternmq.security.private_files import write_new
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.node.test_access import ON, PASSWORD, ROUNDS, admin_of, user_url
from tests.integration.processes import Node, NodeFactory, tern
from tests.oidc_issuer import issuing


def command_line(node: Node) -> str:
    return Path(f"/proc/{node.pid}/cmdline").read_text()


async def test_passwords_tokens_and_master_keys_are_nowhere(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Of users, of an issuer, of encrypted topics; used rightly and wrongly, over a restart."""
    master, body = new_key_text(), "canary-body-1f7c"
    key_file = tmp_path / "shop.key"
    write_new(key_file, master.encode() + b"\n")
    with issuing() as issuer:
        settings = {f"TERN_{name.upper()}": value for name, value in issuer.settings.items()}
        more = {**settings, "TERN_OIDC_ALGORITHMS": "RS256,ES256"}
        node = await asyncio.to_thread(node_factory, environment={**ON, **more})
        secrets = [PASSWORD, master, body, "canary-wrong-password"]
        texts: list[str] = []
        async with admin_of(node) as admin:
            await admin.admin.add_user("shop", PASSWORD, iterations=ROUNDS)
            await admin.admin.create_topic("sealed", TopicSettings(master_key="shop"))
            for action in ("publish", "read", "manage"):
                await admin.admin.grant("shop", action, "sealed")
            await admin.admin.set_quota("shop", {"delayed_max": 5, "groups_max": 5})
            made = await admin.admin.create_token("shop", expires=60)
            token = made.token
            outside = issuer.token("shop", iat=time.time() + 1)
            secrets += [token, outside, token.split(".")[2], outside.split(".")[2]]
            url = user_url(node, "shop")
            keys = {"shop": f"file:{key_file}"}
            right: list[dict[str, Any]] = [{"password": PASSWORD}, {"token": token}]
            for login in (*right, {"token": outside}):
                async with ternmq.connect(url, keys=keys, **login) as mq:
                    await mq.send("sealed", body.encode(), subject="ada")
                    await mq.send("sealed", body.encode(), delay=3600)
            wrong: list[dict[str, Any]] = [{"password": "canary-wrong-password"}]
            for login in (*wrong, *({"token": each[:-4] + "AAAA"} for each in (token, outside))):
                try:
                    async with ternmq.connect(url, **login) as mq:
                        await mq.send("sealed", b"x")
                except TernError as error:
                    texts += [str(error), repr(error), repr(error.details)]
            with suppress(TernError):
                await admin.admin.rewrap_keys("sealed", "shop")
            texts.append(repr(await admin.admin.delays.status()))
            texts.append(repr(await admin.admin.users()))
            texts.append(repr(await admin.admin.tokens("shop")))
            texts.append(repr(await admin.admin.topic_keys("sealed")))
            texts.append(repr(await admin.admin.sessions()))
        password = (node.data_dir / "admin-password").read_text(encoding="ascii").strip()
        for words in (("status", "--json"), ("doctor",), ("quota", "list"), ("user", "list")):
            ran = await asyncio.to_thread(
                tern, *words, url=user_url(node, "admin"), password=password, code=None
            )
            texts += [ran.out, ran.err]
        texts.append(command_line(node))
        await asyncio.to_thread(node.restart)

    texts += [node.stderr_text(), node.stdout_text()]
    files = [path for path in node.data_dir.rglob("*") if path.is_file()]
    kept = {path.name: path.read_bytes() for path in files}
    for secret in secrets:
        assert not [text[:200] for text in texts if secret in text]
        assert not [name for name, content in kept.items() if secret.encode() in content]
