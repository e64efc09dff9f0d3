"""A real node takes tokens of a real issuer, renews them live, and knows its new keys (S3)."""

import asyncio
import time
from pathlib import Path

import pytest

import ternmq
from ternmq.core.errors import Forbidden, Unauthorized
from tests.integration.node.test_access import ON, admin_of, user_url
from tests.integration.processes import NodeFactory
from tests.oidc_issuer import issuing
from tests.waiting import until


async def test_a_user_of_an_issuer_sends_over_the_end_of_its_token_and_over_new_keys(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    with issuing() as issuer:
        settings = {f"TERN_{name.upper()}": value for name, value in issuer.settings.items()}
        more = {**settings, "TERN_OIDC_ALGORITHMS": "RS256,ES256"}
        node = await asyncio.to_thread(node_factory, environment={**ON, **more})
        url, file = user_url(node, "shop"), tmp_path / "token"
        file.touch(mode=0o600)
        async with admin_of(node) as admin:
            await admin.admin.create_topic("orders")
            await admin.admin.add_user("shop")
            await admin.admin.grant("shop", "publish", "orders")
            now, before = time.time() + 1, time.monotonic()
            file.write_text(issuer.token(iat=now, exp=now - 53))  # Good for the skew alone: 7 s.
            async with ternmq.connect(url, token_file=file) as mq:
                await mq.send("orders", b"0")
                issuer.rotate()
                file.write_text(issuer.token(iat=now))
                sent = 1
                while time.monotonic() < before + 9:
                    await mq.send("orders", b"%d" % sent)
                    sent += 1
                    await asyncio.sleep(0.05)
                with pytest.raises(Forbidden):
                    await mq.send("other", b"x")
                assert len([each async for each in admin.read("orders")]) == sent
            with pytest.raises(Unauthorized):
                async with ternmq.connect(url, token=issuer.token("bank")):
                    pass
            await admin.admin.revoke_tokens("shop")

            async def refused() -> bool:
                try:
                    async with ternmq.connect(url, token_file=file) as late:
                        await late.send("orders", b"x")
                except Unauthorized as error:
                    return "revoked" in error.message
                return False

            await until(refused)
