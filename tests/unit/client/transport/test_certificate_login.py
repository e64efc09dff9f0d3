"""Certificates as identities, over real TLS: whom they name comes in without a password (S4.7)."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ternmq.client.transport.certificate_login import CertificateLogin
from ternmq.core.errors import Forbidden, Unauthorized, Unavailable
from ternmq.rpc.connection import Connection
from ternmq.rpc.guarded.guard import STALE_S
from ternmq.rpc.guarded.guarded_peer import bound_session
from ternmq.rpc.node_proof import over
from ternmq.security.tls.authority import CertificateOrder
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.client_tls import ClientTls
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.read import Read
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.tls_files import ALL_IN_ONE, HOSTS, TlsFiles
from tests.unit.rpc.guarded.guarded_server import WAIT, GuardedServer, guarded_server, user
from tests.waiting import until

READ = pack(Read(topic="t", sequence=0, rows_max=1, size_max=1))


@dataclass
class TlsServer:
    """A guarded server over TLS, and certificates of its authority."""

    server: GuardedServer
    files: TlsFiles

    def certificate(self, name: str, hosts: Sequence[str] = ()) -> CertificateFiles:
        pair = self.files.authority.issue(CertificateOrder(name=name, hosts=hosts))
        return CertificateFiles(certificate=pair.certificate, key=pair.key, ca=self.files.ca)

    async def connect(
        self, files: CertificateFiles, *, app: str = "shop", claims: str = ""
    ) -> Connection:
        hello = Hello(protocol=PROTOCOL_VERSION, app=app, version="0", session=b"s" * 16)
        greeting = CertificateLogin(claims).greeting(hello) if claims else hello
        return await Connection.open(
            self.server.address, over(greeting, ClientTls(files)), timeout=WAIT
        )


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[TlsServer]:
    files = TlsFiles(tmp_path / "ca")
    async with guarded_server(tmp_path, files.serving()) as server:
        yield TlsServer(server, files)


@pytest.mark.parametrize("claims", ["", "shop"])
async def test_who_shows_a_certificate_of_a_user_is_that_user(
    secured: TlsServer, claims: str
) -> None:
    server = secured.server
    server.book.put("shop", user("allow read t"))
    server.book.put("bank", user("allow read *"))
    connection = await secured.connect(secured.certificate("shop"), claims=claims)
    await connection.call(Command.READ, READ)
    assert server.sessions == [bound_session("shop", b"s" * 16)]
    server.topics.there.add("other")
    with pytest.raises(Forbidden, match="'shop' may not read"):
        await connection.call(
            Command.READ, pack(Read(topic="other", sequence=0, rows_max=1, size_max=1))
        )
    await connection.close()


async def test_a_removed_user_is_sent_away_at_once(secured: TlsServer) -> None:
    server = secured.server
    server.book.put("shop", user("allow read t"))
    connection = await secured.connect(secured.certificate("shop"))
    server.book.put("shop", None)
    await until(lambda: connection.closed)
    with pytest.raises(Unauthorized, match="no user 'shop' any more"):
        await connection.call(Command.READ, READ)
    await connection.close()


async def test_a_certificate_is_good_for_nobody_else(secured: TlsServer) -> None:
    server = secured.server
    for name in ("shop", "bank"):
        server.book.put(name, user("allow * *"))
    shop = secured.certificate("shop")
    with pytest.raises(Unauthorized, match="is of 'shop', not of 'bank'"):
        await secured.connect(shop, claims="bank")
    with pytest.raises(Forbidden, match="cannot be the application 'bank'"):
        await secured.connect(shop, app="bank")
    assert not server.sessions


async def test_a_certificate_that_names_nobody_is_no_login(secured: TlsServer) -> None:
    secured.server.book.put("shop", user("allow * *"))
    with pytest.raises(Unauthorized, match=r"names 'eve', and there is no such user"):
        await secured.connect(secured.certificate("eve"))
    with pytest.raises(Unauthorized, match="who comes"):
        await secured.connect(secured.files.trusting)
    with pytest.raises(Unauthorized, match="no certificate was shown"):
        await secured.connect(secured.files.trusting, claims="shop")


async def test_a_certificate_of_a_server_never_becomes_a_user(secured: TlsServer) -> None:
    """Though there is a user of its name (Q: whoever has a server's key is no admin by it)."""
    secured.server.book.put("admin", user("allow * *", apps=("*",)))
    for at, hosts in enumerate([HOSTS, ()]):
        name = "admin"
        pair = secured.files.authority.issue(
            CertificateOrder(name=name, hosts=hosts, nodes=ALL_IN_ONE), replace=bool(at)
        )
        files = CertificateFiles(certificate=pair.certificate, key=pair.key, ca=secured.files.ca)
        for claims in ("", "admin"):
            with pytest.raises(Unauthorized, match="names no user"):
                await secured.connect(files, claims=claims)


async def test_another_authority_makes_no_users(secured: TlsServer, tmp_path: Path) -> None:
    secured.server.book.put("shop", user("allow * *"))
    forged = TlsFiles(tmp_path / "forged").client("shop")
    files = CertificateFiles(certificate=forged.certificate, key=forged.key, ca=secured.files.ca)
    with pytest.raises((Unauthorized, Unavailable)):
        await secured.connect(files)
    assert not secured.server.sessions


async def test_nobody_comes_in_by_what_was_true_yesterday(secured: TlsServer) -> None:
    secured.server.book.put("shop", user("allow * *"))
    secured.server.topics.silent = STALE_S + 1
    with pytest.raises(Unavailable, match="nobody could say"):
        await secured.connect(secured.certificate("shop"))


async def test_without_tls_the_method_proves_nothing(server: GuardedServer) -> None:
    server.book.put("shop", user("allow * *"))
    hello = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=b"s" * 16)
    with pytest.raises(Unauthorized, match="no certificate was shown"):
        await Connection.open(
            server.address, CertificateLogin("shop").greeting(hello), timeout=WAIT
        )
