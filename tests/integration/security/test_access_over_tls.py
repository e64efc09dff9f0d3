"""S3: logins over TLS, and servers that are known by their certificates, with security on."""

from pathlib import Path

import pytest

import ternmq
from ternmq.core.errors import Forbidden, Unauthorized
from ternmq.discovery.url import with_tls_files
from tests.integration.processes import NodeFactory
from tests.tls_files import TlsFiles

PASSWORD = "correct horse"


async def test_users_log_in_over_tls_by_passwords_or_by_certificates_of_their_names(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    files = TlsFiles(tmp_path / "ca")
    files.server()
    eve = files.client("eve")
    node = node_factory(environment={**files.settings(), "TERN_SECURITY": "true"})

    def url(user: str) -> str:
        return with_tls_files(f"terns://{user}127.0.0.1:{node.port}", {"ca": str(files.ca)})

    filed = node.data_dir / "admin-password"
    async with ternmq.connect(url("admin@"), password_file=filed) as admin:
        await admin.admin.create_topic("orders")
        await admin.admin.add_user("shop", PASSWORD, iterations=4096)
        await admin.admin.grant("shop", "publish", "orders")
        async with ternmq.connect(url("shop@"), password=PASSWORD) as shop:
            assert await shop.send("orders", b"1")
            assert await shop.send("orders", b"2", delay=0.01)
            with pytest.raises(Forbidden):
                await shop.send("other", b"1")
        shown = files.client("shop")
        pair = {"cert": str(shown.certificate), "key": str(shown.key)}
        async with ternmq.connect(with_tls_files(url("shop@"), pair)) as shop:
            assert await shop.send("orders", b"3")
            with pytest.raises(Forbidden):
                await shop.send("other", b"1")
            with pytest.raises(Unauthorized, match="not of 'admin'"):
                async with ternmq.connect(with_tls_files(url("admin@"), pair)):
                    pass
        async with admin.consumer("orders", group="g") as consumer:
            assert {(await anext(consumer)).body for _ in range(3)} == {b"1", b"2", b"3"}
    with pytest.raises(Unauthorized, match="who comes"):
        async with ternmq.connect(
            url(""), tls_certificate=eve.certificate or "", tls_key=eve.key or ""
        ):
            pass
    with pytest.raises(Unauthorized, match="wrong"):
        async with ternmq.connect(url("shop@"), password="wrong horse"):
            pass
