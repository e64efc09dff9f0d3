"""S3: a cluster of real processes with security on: replicas follow, rights come to brokers."""

from pathlib import Path

import ternmq
from ternmq.core.errors import Forbidden, Unauthorized
from tests.integration.processes import NodeFactory
from tests.waiting import until

PASSWORD = "correct horse"
WITHIN_S = 1.0


async def test_users_of_a_cluster_are_known_to_every_broker_also_after_a_handover(
    node_factory: NodeFactory,
) -> None:
    cluster = node_factory.cluster(
        "--groups", "1", "--replicas", "1", environment={"TERN_SECURITY": "true"}
    )
    filed = Path(cluster.data_dir / "meta-1" / "admin-password")
    shop_url = cluster.url.replace("//", "//shop@")
    async with ternmq.connect(cluster.url.replace("//", "//admin@"), password_file=filed) as admin:
        await admin.admin.create_topic("orders")
        await admin.admin.add_user("shop", PASSWORD, iterations=4096)
        await admin.admin.grant("shop", "publish", "orders")
        async with ternmq.connect(shop_url, password=PASSWORD) as shop:

            async def sent() -> bool:
                return bool(await shop.send("orders", b"x"))

            await until(sent, ignoring=Unauthorized)  # The broker hears of it with its news.
            await admin.admin.grant("shop", "publish", "orders", deny=True)

            async def refused() -> bool:
                try:
                    await shop.send("orders", b"x")
                except Forbidden as error:
                    return "publish on topic 'orders'" in error.message
                return False

            await until(refused, seconds=WITHIN_S)
            await admin.admin.revoke("shop", "publish", "orders", deny=True)
            await until(sent, ignoring=Forbidden)
            made = await admin.admin.create_token("shop", expires=600.0)
            async with ternmq.connect(shop_url, token=made.token) as by_token:

                async def sent_by_token() -> bool:
                    return bool(await by_token.send("orders", b"x"))

                await until(sent_by_token, ignoring=Unauthorized)  # The key is news, too.
                await admin.admin.revoke_tokens("shop", made.about.id)

                async def gone() -> bool:
                    try:
                        await by_token.send("orders", b"x")
                    except Unauthorized:
                        return True
                    return False

                await until(gone, seconds=WITHIN_S)
            await admin.admin.handover("group-1")
            assert await shop.send("orders", b"after the handover")
