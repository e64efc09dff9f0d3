"""S3: a cluster of real processes with security on: replicas follow, rights come to brokers."""

import asyncio
import re
import ssl
from pathlib import Path

import httpx
import pytest

import ternmq
from ternmq.core.errors import Forbidden, SendUnknown, Unauthorized
from tests.integration.processes import Node, NodeFactory
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
                    except SendUnknown:  # It was on its way when the connection ended.
                        return False
                    return False

                await until(gone, seconds=WITHIN_S)
            await admin.admin.handover("group-1")
            assert await shop.send("orders", b"after the handover")


async def console_lets_people_in(cluster: Node) -> None:
    """Over TLS, by the users of the cluster, and nobody else."""
    [told] = [line for line in cluster.stderr_text().splitlines() if "console  " in line]
    place = re.search(r"https://[0-9.:]+", told)
    filed = re.search(r"password is in (.*)$", told)
    assert place is not None and filed is not None, told
    password = (await asyncio.to_thread(Path(filed[1]).read_text, "ascii")).strip()
    trust = ssl.create_default_context(cafile=cluster.data_dir / "tls" / "ca.pem")
    headers = {"Origin": place[0], "Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(
        base_url=place[0], verify=trust, headers=headers, timeout=30
    ) as http:

        async def listens() -> bool:
            return (await http.get("/login")).status_code == 200

        await until(listens, ignoring=httpx.TransportError, seconds=60)
        assert (await http.get("/api/v1/topics")).status_code == 401
        wrong = await http.post("/login", data={"user": "admin", "password": "no", "next": "/"})
        assert wrong.status_code != 303
        came = await http.post("/login", data={"user": "admin", "password": password, "next": "/"})
        assert came.status_code == 303, came.text
        topics = (await http.get("/api/v1/topics")).json()["items"]
        assert [each["topic"] for each in topics] == ["orders"]


async def test_one_word_makes_a_cluster_with_tls_logins_and_rights_that_goes_on_so(
    node_factory: NodeFactory,
) -> None:
    """Certificates of servers, replication over them, the admin by certificate; started again
    without the word it is what it was."""
    cluster = node_factory.cluster(
        "--secure", "--groups", "1", "--replicas", "1", "--delays", "1", "--console"
    )
    address = f"127.0.0.1:{cluster.port}"
    assert cluster.stdout_text() == f"ready terns://{address}\n"
    folder = cluster.data_dir / "tls"
    files = f"ca={folder}/ca.pem&cert={folder}/admin.pem&key={folder}/admin-key.pem"
    admin_url = f"terns://admin@{address}?{files}"
    async with ternmq.connect(admin_url) as admin:
        await admin.admin.create_topic("orders")
        await admin.admin.add_user("shop", PASSWORD, iterations=4096)
        await admin.admin.grant("shop", "publish", "orders")
        shop_url = f"terns://shop@{address}?ca={folder}/ca.pem"
        async with ternmq.connect(shop_url, password=PASSWORD) as shop:

            async def sent() -> bool:
                return bool(await shop.send("orders", b"x"))

            await until(sent, ignoring=Unauthorized)
        states = await admin.admin.brokers()
        assert [state.in_sync for state in states] == [True, True]
    with pytest.raises(Unauthorized):
        async with ternmq.connect(f"terns://{address}?ca={folder}/ca.pem"):
            pass
    await console_lets_people_in(cluster)
    cluster.restart()
    assert cluster.stdout_text().endswith(f"ready terns://{address}\n")
    async with ternmq.connect(admin_url) as admin:
        assert [message.body async for message in admin.read("orders")] == [b"x"]
