"""Listener and connection over TLS: same promises as in the clear, and words for who is wrong."""

import asyncio
import random
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import (
    BadConfig,
    OverLimit,
    ProtocolError,
    TernError,
    Unauthorized,
    Unavailable,
)
from ternmq.core.units import KIB
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection
from ternmq.rpc.node_proof import (
    Greeting,
    NodeCredential,
    NodeGate,
    NodeGreeting,
    NodeIdentity,
    over,
)
from ternmq.rpc.server import Listener, ServerLimits, listening
from ternmq.security.tls.client_tls import ClientTls, OutgoingTls
from ternmq.security.tls.door import LOOK_AGAIN_MAX_S, LOOK_AGAIN_S, pauses
from ternmq.security.tls.node_name import NodeName
from ternmq.security.tls.server_tls import ServerTls
from ternmq.wire.frame import FRAME_SIZE_MAX
from ternmq.wire.messages.hello import BROKER, PROTOCOL_VERSION, Hello
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.numbers import Command
from tests.tls_files import TlsFiles
from tests.unit.rpc.peers import HELLO, WAIT, Echo, RawClient, a_frame, hello_frame, serving
from tests.waiting import until


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "ca")


@asynccontextmanager
async def guarded(
    tls: ServerTls, handler: Echo | None = None, *, limits: ServerLimits | None = None
) -> AsyncIterator[Listener]:
    clock = SystemClock()
    gate = NodeGate(None, "broker", "main", now=clock.monotonic, cluster=tls.cluster)
    async with listening(
        "127.0.0.1",
        0,
        handler or Echo(),
        limits=limits or ServerLimits(),
        clock=clock,
        gate=gate,
        tls=tls,
    ) as listener:
        yield listener


async def called(listener: Listener, tls: OutgoingTls, greeting: Hello = HELLO) -> Connection:
    return await begun(listener, over(greeting, tls))


async def begun(listener: Listener, greeting: Greeting) -> Connection:
    return await Connection.open(join_address(*listener.address), greeting, timeout=WAIT)


async def is_served(listener: Listener, files: TlsFiles) -> None:
    """Somebody else comes in; a busy machine may need more than one try within short limits."""
    tls = files.asking()
    connection = await until(lambda: called(listener, tls), ignoring=Unavailable)
    await connection.close()


async def test_answers_of_every_size_come_in_order(files: TlsFiles) -> None:
    sizes = [1, 100 * KIB, 5, FRAME_SIZE_MAX, 0, 20 * KIB, 3]
    async with guarded(files.serving()) as listener:
        connection = await called(listener, files.asking())
        calls = [connection.call(Command.PUBLISH, bytes(size)) for size in sizes]
        answers = await asyncio.gather(*calls)
        await connection.close()

    assert [len(answer) for answer in answers] == sizes


async def test_only_tls_1_3_is_spoken(files: TlsFiles) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(files.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with guarded(files.serving()) as listener:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(*listener.address, ssl=old, server_hostname="127.0.0.1")


async def test_a_client_in_the_clear_is_told_to_use_terns(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        with pytest.raises(BadConfig, match="this port speaks TLS: use terns://"):
            await begun(listener, HELLO)


async def test_a_tls_client_at_a_plain_port_is_told_to_use_tern(files: TlsFiles) -> None:
    async with serving(Echo()) as listener:
        with pytest.raises(BadConfig, match="does not speak TLS: use tern://"):
            await called(listener, files.asking())


async def test_every_size_of_a_plain_hello_is_told_from_tls(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        # Sizes whose low byte is the first byte of TLS.
        for wanted in (0x0116, 0x0316):
            padding = "h" * (wanted - 47)
            frame = hello_frame(Hello(PROTOCOL_VERSION, "shop", "0", bytes(16), host=padding))
            frame = frame + b"x" * 64
            async with RawClient(listener) as client:
                client.send(wanted.to_bytes(4, "little") + frame[4:])
                assert isinstance(await client.reason(), BadConfig)


async def test_a_client_that_sends_byte_by_byte_comes_in(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        reader, writer = await asyncio.open_connection(*listener.address)
        frame = hello_frame()
        for at in range(3):
            writer.write(frame[at : at + 1])
            await asyncio.sleep(0.01)
        writer.write(frame[3:])
        async with asyncio.timeout(WAIT):
            said = await reader.read()
        writer.close()

    assert b"terns://" in said


def test_who_keeps_the_door_waiting_for_a_byte_is_looked_at_seldom() -> None:
    waited = list(islice(pauses(), 40))

    assert waited[0] == LOOK_AGAIN_S
    assert waited == sorted(waited)
    assert set(waited[5:]) == {LOOK_AGAIN_MAX_S}


async def test_a_stranger_is_not_trusted(files: TlsFiles, tmp_path: Path) -> None:
    other = TlsFiles(tmp_path / "other")
    async with guarded(files.serving()) as listener:
        with pytest.raises(Unavailable, match=r"not trusted.*terns://…\?ca=FILE"):
            await called(listener, other.asking())


async def test_a_certificate_for_another_host_is_refused(files: TlsFiles) -> None:
    tls = ServerTls(files.server(hosts=["elsewhere.example"]))
    async with guarded(tls) as listener:
        with pytest.raises(Unavailable, match=r"not trusted.*--host 127\.0\.0\.1"):
            await called(listener, files.asking())


async def test_a_client_s_certificate_is_no_server_s(files: TlsFiles, tmp_path: Path) -> None:
    """Who has stolen one from an application is no server by it."""
    with pytest.raises(BadConfig, match="purpose"):
        ServerTls(files.client())


async def test_who_must_show_a_certificate_and_does_not_is_told_so(files: TlsFiles) -> None:
    async with guarded(files.serving(must_show=True)) as listener:
        with pytest.raises(Unauthorized, match=r"only who shows a certificate.*tern secure cert"):
            await called(listener, files.asking())
        connection = await called(listener, ClientTls(files.client()))
        assert await connection.call(Command.PUBLISH, b"in") == b"in"
        await connection.close()


@pytest.mark.parametrize("wrong", ["other CA", "expired"])
async def test_a_wrong_certificate_is_refused_even_where_none_is_needed(
    files: TlsFiles, tmp_path: Path, wrong: str
) -> None:
    if wrong == "expired":
        shown = files.client(days=-1)
    else:
        theirs = TlsFiles(tmp_path / "other").client()
        shown = type(theirs)(certificate=theirs.certificate, key=theirs.key, ca=files.ca)
    async with guarded(files.serving()) as listener:
        with pytest.raises(Unavailable):
            await called(listener, ClientTls(shown))
        assert not listener.peers


async def test_both_sides_know_the_certificates(files: TlsFiles) -> None:
    handler, tls = Echo(), files.serving()
    async with guarded(tls, handler) as listener:
        connection = await called(listener, ClientTls(files.client("shop")))
        [peer] = handler.welcomed
        seen, shown, terms = peer.certificate, connection.certificate, peer.tls
        await connection.close()

    assert seen is not None and shown is not None and terms is not None
    assert seen.common_name == "shop"
    assert "tern://shop/realtime/main" in shown.uris
    assert shown.sha256 == terms.shown == tls.certificate.sha256


async def test_a_hello_may_be_larger_than_in_the_clear_and_not_by_much(files: TlsFiles) -> None:
    def sized(size: int) -> Hello:
        return Hello(PROTOCOL_VERSION, "shop", "0", bytes(16), host="h" * size)

    async with guarded(files.serving()) as listener:
        await (await called(listener, files.asking(), sized(15_000))).close()
        with pytest.raises(ProtocolError, match="at most"):
            await called(listener, files.asking(), sized(17_000))


# Closing: TLS has no half-close here.


async def test_the_reason_arrives_although_the_client_goes_on_sending(files: TlsFiles) -> None:
    """The kernel throws away what was written if a socket is closed with bytes unread."""
    handler = Echo()
    async with guarded(files.serving(), handler) as listener:
        connection = await called(listener, files.asking())
        reasons: list[TernError] = []
        connection.listen(lost=reasons.append)
        [peer] = handler.welcomed
        transport = connection._transport
        transport.pause_reading()  # It is busy with sending.
        for _ in range(40):
            connection.send(Command.PUBLISH, bytes(1_000_000))
        await until(lambda: handler.frames)
        peer.close(OverLimit("too much of it"))
        for _ in range(40):
            connection.send(Command.PUBLISH, bytes(1_000_000))
            await asyncio.sleep(0)
        await until(lambda: reasons or not transport.get_write_buffer_size())
        if not reasons:
            transport.resume_reading()
        await until(lambda: reasons)
        await until(lambda: not listener._pool.leaving)

    assert isinstance(reasons[0], OverLimit)


async def test_a_refused_hello_is_told_why(files: TlsFiles) -> None:
    handler = Echo()
    handler.refuse = Unauthorized("not you")
    async with guarded(files.serving(), handler) as listener:
        with pytest.raises(Unauthorized, match="not you"):
            await called(listener, files.asking())
        await until(lambda: not listener._pool.leaving)


async def test_a_bad_frame_is_told_over_tls(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        connection = await called(listener, files.asking())
        reasons: list[TernError] = []
        connection.listen(lost=reasons.append)
        connection._transport.write(a_frame(Command.PUBLISH, b"", correlation=1))
        await until(lambda: reasons)

    assert isinstance(reasons[0], ProtocolError)


async def test_what_was_answered_before_a_stop_arrives(files: TlsFiles) -> None:
    handler = Echo()
    async with guarded(files.serving(), handler) as listener:
        connection = await called(listener, files.asking())
        calls = [connection.call(Command.PUBLISH, bytes(500_000)) for _ in range(20)]
        await until(lambda: len(handler.frames) == 20)
    answers = await asyncio.gather(*calls)

    assert [len(answer) for answer in answers] == [500_000] * 20
    assert connection.closed


async def test_a_peer_that_does_not_hang_up_is_cut(files: TlsFiles) -> None:
    limits = ServerLimits(linger=0.05, sweep=0.02)
    handler = Echo()
    async with guarded(files.serving(), handler, limits=limits) as listener:
        context = files.asking().context()
        _, writer = await asyncio.open_connection(
            *listener.address, ssl=context, server_hostname="localhost"
        )
        writer.write(hello_frame())
        await until(lambda: handler.welcomed)
        handler.welcomed[0].close(OverLimit("go"))
        await until(lambda: not listener._pool.leaving)
        writer.close()


async def test_strangers_who_say_nothing_are_bounded_in_number_and_time(files: TlsFiles) -> None:
    limits = ServerLimits(connections_max=3, hello_timeout=0.3)
    async with guarded(files.serving(), limits=limits) as listener:
        silent = [await asyncio.open_connection(*listener.address) for _ in range(3)]
        door = listener._door
        assert door is not None
        await until(lambda: len(door._arriving) == 3)
        with pytest.raises(Unavailable):
            await called(listener, files.asking())
        assert listener.refused == 1
        await until(lambda: not door._arriving)
        await is_served(listener, files)
        for _, writer in silent:
            writer.close()


async def test_garbage_in_place_of_a_handshake_costs_only_who_sent_it(
    files: TlsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(7)
    async with guarded(files.serving(), limits=ServerLimits(hello_timeout=0.5)) as listener:
        door = listener._door
        assert door is not None
        for number in range(24):
            begin = bytes.fromhex(chance.choice(["160301", "160303", "16", "", "1603ff"]))
            reader, writer = await asyncio.open_connection(*listener.address)
            writer.write(begin + chance.randbytes(chance.randrange(1, 2_000)))
            if number % 3 == 0:
                writer.transport.abort()
            else:
                async with asyncio.timeout(WAIT):
                    with suppress(ConnectionError):
                        await reader.read()
            writer.close()
        await until(lambda: not door._arriving)
        await is_served(listener, files)

    assert "by a bug" not in capsys.readouterr().err


async def test_half_a_handshake_is_cut_in_time(files: TlsFiles) -> None:
    async with guarded(files.serving(), limits=ServerLimits(hello_timeout=0.5)) as listener:
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(bytes.fromhex("160301020001000100"))
        async with asyncio.timeout(WAIT):
            said = await reader.read()
        writer.close()
        await is_served(listener, files)

    assert said == b""


async def test_a_listener_that_stops_cuts_who_is_still_on_the_way(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        silent, quiet = await asyncio.open_connection(*listener.address)
        half, writer = await asyncio.open_connection(*listener.address)
        writer.write(bytes.fromhex("160301020001000100"))
        door = listener._door
        assert door is not None
        await until(lambda: len(door._arriving) == 2)
    async with asyncio.timeout(WAIT):
        assert await silent.read() == b""
        assert await half.read() == b""
    quiet.close()
    writer.close()


async def test_without_files_to_open_it_accepts_again_later(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ternmq.security.tls.door.ACCEPT_AGAIN_S", 0.01)
    async with guarded(files.serving()) as listener:
        door = listener._door
        assert door is not None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        context = files.asking()
        first = await called(listener, context)
        waiting = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
        try:
            waiting.connect(listener.address)
            await until(lambda: door._timers)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await first.call(Command.PUBLISH, b"on") == b"on"
        again = await called(listener, context)
        waiting.close()
        await first.close()
        await again.close()


# Swapping.


async def test_the_next_connection_has_the_new_certificate_and_the_old_one_goes_on(
    files: TlsFiles,
) -> None:
    tls = files.serving()
    async with guarded(tls) as listener:
        before = await called(listener, files.asking())
        files.server(replace=True)
        tls.look()
        after = await called(listener, files.asking())
        assert await before.call(Command.PUBLISH, b"still") == b"still"
        assert before.certificate != after.certificate
        await before.close()
        await after.close()


async def test_a_removed_ca_lets_nobody_in_any_more(files: TlsFiles, tmp_path: Path) -> None:
    other = TlsFiles(tmp_path / "other")
    both = files.folder / "both.pem"
    both.write_bytes(files.ca.read_bytes() + other.ca.read_bytes())
    theirs, own = other.client("theirs"), files.server()
    tls = ServerTls(type(own)(certificate=own.certificate, key=own.key, ca=both))
    asking = ClientTls(type(own)(certificate=theirs.certificate, key=theirs.key, ca=files.ca))
    async with guarded(tls) as listener:
        await (await called(listener, asking)).close()
        both.write_bytes(files.ca.read_bytes())
        tls.look()
        with pytest.raises(Unavailable):
            await called(listener, asking)


# Servers of the cluster.


def node_greeting(
    tls: OutgoingTls, kind: BrokerGroupKind = "realtime", group: str = "main"
) -> Greeting:
    hello = Hello(protocol=PROTOCOL_VERSION, app=BROKER, version="0", session=bytes(16))
    return over(NodeGreeting(hello, NodeCredential(None, NodeIdentity(kind, group))), tls)


async def test_a_server_is_proven_by_its_certificate(files: TlsFiles) -> None:
    handler, tls = Echo(), files.serving()
    async with guarded(tls, handler) as listener:
        connection = await begun(listener, node_greeting(tls))
        [peer] = handler.welcomed
        assert peer.node == NodeIdentity("realtime", "main")
        await connection.close()


@pytest.mark.parametrize("group", ["east", "main/x"])
async def test_a_server_speaks_for_the_group_of_its_certificate_only(
    files: TlsFiles, group: str
) -> None:
    tls = files.serving()
    async with guarded(tls) as listener:
        with pytest.raises(Unauthorized, match=r"this certificate is for tern://shop/meta"):
            await begun(listener, node_greeting(tls, group=group))


async def test_a_client_s_certificate_proves_no_server(files: TlsFiles) -> None:
    async with guarded(files.serving()) as listener:
        for shown in (files.client(), files.trusting):
            with pytest.raises(Unauthorized, match="for no server"):
                await begun(listener, node_greeting(ClientTls(shown)))


async def test_a_server_of_another_cluster_is_none_of_ours(files: TlsFiles) -> None:
    tls = files.serving()
    theirs = ServerTls(files.server("theirs", nodes=[NodeName("rival", "realtime", "main")]))
    async with guarded(tls) as listener:
        with pytest.raises(BadConfig, match="no server of the cluster 'rival'"):
            await begun(listener, node_greeting(theirs))
        with pytest.raises(Unauthorized, match=r"for tern://rival/realtime/main, not"):
            await begun(listener, node_greeting(ClientTls(theirs.files)))
