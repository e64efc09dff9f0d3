"""S4.4, 6, 7, 9: a node with security on, as a real process: command line, clients, and thieves."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

import ternmq
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.client.transport.user_login import UserGreeting, UserLogin
from ternmq.core.errors import AlreadyExists, Forbidden, TernError, Unauthorized
from ternmq.core.ids import ProducerId
from ternmq.rpc.connection import Connection, request
from ternmq.security.access.secret import Secret
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.messages.pull import Join, Joined
from ternmq.wire.messages.topics import TopicFind, Topics
from ternmq.wire.messages.transactions import DetachedEnd, HalfEnd, HalfEnded
from ternmq.wire.numbers import Command
from tests.integration.processes import Node, NodeFactory, tern
from tests.waiting import until, wait_until

ON = {"TERN_SECURITY": "true"}
ROUNDS = 4096
PASSWORD = "canary-7f3a-of-a-user"
WITHIN_S = 1.0


def user_url(node: Node, name: str) -> str:
    return node.url.replace("tern://", f"tern://{name}@")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests here: each has users and topics of its own."""
    factory = NodeFactory(tmp_path_factory.mktemp("secured"))
    try:
        yield factory(environment=ON)
    finally:
        factory.finish()


def admin_password(node: Node) -> str:
    return (node.data_dir / "admin-password").read_text(encoding="ascii").strip()


@asynccontextmanager
async def admin_of(node: Node) -> AsyncIterator[ternmq.Client]:
    url = user_url(node, "admin")
    async with ternmq.connect(url, password=admin_password(node)) as mq:
        yield mq


@asynccontextmanager
async def user_of(
    node: Node, admin: ternmq.Client, name: str, *lines: str, **options: Any
) -> AsyncIterator[ternmq.Client]:
    """A new user with these rights, connected."""
    await admin.admin.add_user(name, PASSWORD, iterations=ROUNDS)
    for line in lines:
        rule, action, resource = line.split()
        await admin.admin.grant(name, action, resource, deny=rule == "deny")
    async with ternmq.connect(user_url(node, name), password=PASSWORD, **options) as mq:
        yield mq


def test_the_way_from_a_new_node_to_users_with_rights_by_the_command_line(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """And no password in a log, a list, an error, the audit, or a command line."""
    node = node_factory(environment=ON)
    url, first = user_url(node, "admin"), admin_password(node)
    refused = tern("topic", "list", url=node.url, code=1)
    assert "tern://USER@HOST" in refused.err
    assert "needs a password" in tern("topic", "list", url=url, code=2).err
    wrong = tern("topic", "list", url=url, password="canary-7f3a-wrong", code=1)
    assert "user or password is wrong" in wrong.err

    def admin(*words: str, **more: Any) -> Any:
        return tern(*words, url=url, password=first, **more)

    admin("topic", "create", "order.new")
    added = admin("user", "add", "shop", "--json", stdin=PASSWORD.encode() + b"\n").json()
    assert (added["name"], added["apps"], added["grants"]) == ("shop", ["shop"], [])
    shop: dict[str, Any] = {"url": user_url(node, "shop"), "password": PASSWORD}
    hint = tern("send", "order.new", "a", **shop, code=1).err
    assert "tern grant add shop publish 'order.new'" in hint
    [line] = admin("grant", "add", "shop", "publish", "order.*", "--json").json()
    assert (line["action"], line["resource"]) == ("publish", "topic:order.*")
    tern("send", "order.new", "a", **shop)
    quota = admin("quota", "set", "shop", "--connections", "9", "--rate", "5/s", "--json").json()
    assert (quota["connections_max"], quota["rate"]) == (9, 5)
    tern("user", "password", "shop", **shop, stdin=b"canary-7f3a-second\n")
    assert admin("grant", "remove", "shop", "publish", "order.*", "--json").json() == []
    listed = admin("user", "list")
    assert admin("doctor", "--from-client").code == 0
    assert "shop" in listed.out
    again = tern("user", "bootstrap", "--data-dir", str(node.data_dir), "--json").json()
    assert again["password_file"] == str(node.data_dir / "admin-password")
    second = admin_password(node)
    assert second != first
    wait_until(
        lambda: tern("user", "remove", "shop", "--yes", url=url, password=second).code == 0,
        ignoring=AssertionError,
    )

    audit = "".join(path.read_text() for path in node.data_dir.glob("audit-*.log"))
    events = {json.loads(line)["event"] for line in audit.splitlines()}
    assert {"login", "refused", "grant", "manage"} <= events
    texts = [audit, node.stderr_text(), node.stdout_text(), listed.out, wrong.err, hint]
    texts.append(Path(f"/proc/{node.pid}/cmdline").read_text())
    for secret in ("canary-7f3a", first, second):
        assert not [text for text in texts if secret in text]


async def test_nobody_is_let_in_without_a_login_by_any_server(secured: Node) -> None:
    hello = Hello(protocol=PROTOCOL_VERSION, app="eve", version="0", session=bytes(16))
    for port in range(secured.port, secured.port + 3):
        with pytest.raises(Unauthorized, match="who comes") as caught:
            await Connection.open(f"127.0.0.1:{port}", hello, timeout=10)
        assert caught.value.details["methods"] == ["scram", "token"]


async def test_a_removed_user_is_gone_within_a_second_from_all_servers(secured: Node) -> None:
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "leaver", "allow publish gone.*", "allow manage gone.*") as leaver,
    ):
        await leaver.send("gone.now", b"1")
        await leaver.send("gone.now", b"2", delay=3600)
        links = [link.connection for link in leaver.cluster._servers.values()]
        assert len(links) == 2
        await admin.admin.remove_user("leaver")
        await until(
            lambda: all(link is not None and link.closed for link in links), seconds=WITHIN_S
        )
        with pytest.raises(Unauthorized):
            await leaver.send("gone.now", b"3")


async def test_a_consumer_whose_right_is_taken_is_told_within_a_second(secured: Node) -> None:
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "listener", "allow subscribe heard") as listener,
    ):
        await admin.admin.create_topic("heard")
        async with listener.consumer("heard", group="listener") as consumer:
            await admin.send("heard", b"1")
            message = await anext(consumer)
            await message.ack()
            await admin.admin.revoke("listener", "subscribe", "heard")
            with pytest.raises(Forbidden, match="subscribe"):
                async with asyncio.timeout(10):
                    await anext(consumer)


async def test_lists_show_what_one_may_see(secured: Node) -> None:
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "viewer", "allow publish seen.*") as viewer,
    ):
        for topic in ("seen.a", "hidden.a"):
            await admin.admin.create_topic(topic)
            await admin.send(topic, b"x")
            await admin.admin.create_group(topic, "g")
        assert [topic.name for topic in await viewer.admin.topics()] == ["seen.a"]
        assert {group.topic for group in await viewer.admin.groups()} == {"seen.a"}
        assert "hidden.a" in [topic.name for topic in await admin.admin.topics()]
        assert [topic.name for topic in await viewer.admin.topics("%")] == []
        assert not [each for each in await admin.admin.topics("%") if "access" in each.name]
        assert (await viewer.admin.meta_status()).data_dir == ""
        with pytest.raises(Forbidden, match="grant"):
            await viewer.admin.users()
        with pytest.raises(Forbidden, match=r"describe on topic 'hidden\.a'"):
            await viewer.admin.topic_figures("hidden.a")


async def test_nobody_adopts_the_lease_of_another_user(secured: Node) -> None:
    """H1: with the session and the lease of the victim in hand."""
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "victim", "allow subscribe leased") as victim,
    ):
        await admin.admin.create_topic("leased")
        await admin.admin.add_user("thief", PASSWORD, apps=["*"], iterations=ROUNDS)
        for resource in ("leased", "group:victim"):
            await admin.admin.grant("thief", "subscribe", resource)
        await admin.send("leased", b"1")
        async with victim.consumer("leased", group="victim") as consumer:
            message = await anext(consumer)
            lease = message._delivery.lease
            session = victim.cluster.hello.session
            [group] = [each for each in await admin.admin.groups() if each.topic == "leased"]
            assert group.members[0].session != session.hex(), "what is shown is not the key"
            for stolen in (session, bytes.fromhex(group.members[0].session)):
                kept = await _join(secured, "thief", stolen, lease)
                assert kept == []
            await message.ack()
        assert await _ledger_acked(admin, "leased") == 1


async def _join(node: Node, name: str, session: bytes, lease: int) -> list[int]:
    hello = Hello(protocol=PROTOCOL_VERSION, app="victim", version="0", session=session)
    greeting = UserGreeting(hello, UserLogin(name, Secret(PASSWORD)))
    connection = await Connection.open(f"127.0.0.1:{node.port + 1}", greeting, timeout=10)
    join = Join(group="victim", topics=["leased"], held=[lease])
    joined = await request(connection, Command.JOIN, join, Joined, timeout=10)
    connection.abort()
    return list(joined.kept)


async def _ledger_acked(admin: ternmq.Client, topic: str) -> int:
    async def acked() -> int:
        return sum(line.acked for line in await admin.admin.ledger(topic))

    return await until(acked)


async def test_a_transaction_of_another_is_ended_by_who_may_operate(secured: Node) -> None:
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "bank", "allow publish pay", "allow manage pay") as bank,
        user_of(secured, admin, "robber", "allow publish *", "allow describe *") as robber,
    ):
        await admin.admin.create_topic("pay")
        bank.transaction_checker(lambda check: "unknown")
        async with bank.transaction() as transaction:
            await transaction.send("pay", b"1")
            [open_one] = list(await robber.admin.halves())
            end = HalfEnd(transaction=open_one.transaction, action="commit")
            link = robber.cluster.broker(open_one.broker_group)
            with pytest.raises(Forbidden, match="operate on topic 'pay'"):
                await robber.cluster.ask(link, Command.HALF_END, end, HalfEnded)
            await admin.admin.grant("robber", "operate", "pay")

            async def ended() -> HalfEnded:
                return await robber.cluster.ask(link, Command.HALF_END, end, HalfEnded)

            done = await until(ended, ignoring=Forbidden)
            assert done.state == "committed"


async def test_delayed_messages_are_cancelled_by_who_may(secured: Node) -> None:
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, "sender", "allow publish later") as sender,
        user_of(secured, admin, "meddler", "allow publish *", "allow delay other") as meddler,
    ):
        await admin.admin.create_topic("later")
        receipt = await sender.send("later", b"1", delay=3600)
        for thief in (sender, meddler):
            with pytest.raises(Forbidden, match="delay"):
                await thief.cancel(receipt)
            with pytest.raises(Forbidden, match="delay"):
                await thief.admin.delays.rows(topic="later")
        await admin.admin.grant("sender", "delay", "later")
        await admin.admin.grant("meddler", "delay", "later")

        async def seen() -> bool:
            found = await meddler.admin.delays.rows(topic="later")
            return len(list(found)) == 1

        await until(seen, ignoring=Forbidden)
        for change in (meddler.cancel(receipt), meddler.reschedule(receipt, delay=5)):
            with pytest.raises(Forbidden, match="'meddler' may not operate on topic 'later'"):
                await change
        second = await sender.send("later", b"2", delay=3600)

        async def cancelled() -> Any:
            return await sender.cancel(receipt)

        assert await until(cancelled, ignoring=Forbidden)
        await admin.admin.grant("meddler", "operate", "later")

        async def cancelled_by_operator() -> Any:
            return await meddler.cancel(second)

        assert await until(cancelled_by_operator, ignoring=Forbidden)


async def test_identities_are_told_to_no_client_whatever_it_may(secured: Node) -> None:
    async with admin_of(secured) as admin:
        found = await admin.cluster.ask_meta(
            Command.TOPIC_LIST, TopicFind(prefix="%access."), Topics
        )
        assert found.topics == []
        for topic in ("%access.admin", "%control", "%placement"):
            with pytest.raises(TernError):
                async with admin.consumer(topic, group="admin") as consumer:
                    await anext(consumer)


async def test_security_survives_a_restart_and_makes_no_second_admin(
    node_factory: NodeFactory,
) -> None:
    node = node_factory(environment=ON)
    first = admin_password(node)
    async with admin_of(node) as admin:
        await admin.admin.add_user("shop", PASSWORD, iterations=ROUNDS)
    node.restart()

    assert admin_password(node) == first
    async with ternmq.connect(user_url(node, "shop"), password=PASSWORD) as shop:
        assert shop.app == "shop"


def test_a_node_with_users_does_not_start_without_security(node_factory: NodeFactory) -> None:
    """Everybody would be let in, and nobody would notice."""
    node = node_factory(environment=ON)
    assert node.stop() == 0
    node.environment = {}
    node.launch()

    assert node.process.wait(20) == 2
    assert "set security = true" in node.stderr_text()


async def test_who_may_nothing_cannot_end_a_detached_transaction_before_it_begins(
    secured: Node,
) -> None:
    """Its owner would be told that all is committed, and nothing would be stored (Q9)."""
    async with admin_of(secured) as admin:
        await admin.admin.create_topic("nightly")
        owner = user_of(secured, admin, "etl", "allow publish nightly", app="etl")
        async with user_of(secured, admin, "idler", app="idler") as idler, owner as mq:
            link = await idler.cluster.broker("main").get()
            for action in ("commit", "rollback"):
                early = DetachedEnd(
                    name="night:7", attempts=[], action=action, fenced=False, elsewhere=[7]
                )
                with pytest.raises(Forbidden, match="may not operate on all topics"):
                    await request(link, Command.DETACHED_END, early, HalfEnded, timeout=10)
            many = DetachedEnd(name="n", attempts=[], action="look", elsewhere=[1] * 10_001)
            with pytest.raises(TernError, match="at most 10000 attempts"):
                await request(link, Command.DETACHED_END, many, HalfEnded, timeout=10)

            task = mq.detached("night:7", attempt=7)
            await task.send("nightly", b"bill")
            done = await mq.commit_detached("night:7", [7])
            assert [place.topic for place in done.placed] == ["nightly"]
            again = DetachedEnd(name="night:7", attempts=[7], action="commit")
            with pytest.raises(Forbidden, match="may not publish on topic 'nightly'"):
                await request(link, Command.DETACHED_END, again, HalfEnded, timeout=10)
            assert (await mq.commit_detached("night:7", [7])).placed == done.placed


def numbered(app: str, number: int, *, delay_ms: int | None = None, body: bytes = b"") -> bytearray:
    """A message of one and the same producer, in the words of an application."""
    origin = Origin(topic="bills", app=app, producer=ProducerId(1, 2))
    rows = [Outgoing(body=body or app.encode(), delay_ms=delay_ms, explicit_id=b"%d" % number)]
    return encode_messages(rows, origin=origin, first_sequence=number)


@pytest.mark.parametrize("kind", ["realtime", "delay"])
async def test_nobody_sends_under_the_numbers_of_another_applications_producer(
    secured: Node, kind: Literal["realtime", "delay"]
) -> None:
    """Both may send to the topic, and a producer's id stands in the ids of its messages: who took
    its next number would have its next message called a repeat, and lost (Q2)."""
    later = 3_600_000 if kind == "delay" else None
    names = f"biller-{kind}", f"forger-{kind}", f"relay-{kind}"
    biller, forger, relay = names
    async with admin_of(secured) as admin, AsyncExitStack() as stack:
        with suppress(AlreadyExists):
            await admin.admin.create_topic("bills")
        links = {}
        for name in names:
            lines = ["allow publish bills", *(["allow operate bills"] if name == relay else [])]
            mq = await stack.enter_async_context(user_of(secured, admin, name, *lines))
            links[name] = await mq.cluster.server("main", kind).get()
        await links[biller].call(Command.PUBLISH, numbered(biller, 0, delay_ms=later))

        commands = [Command.PUBLISH] if later else [Command.PUBLISH, Command.PUBLISH_ONCE]
        for command in commands:
            with pytest.raises(Forbidden, match=r"another application.*operate bills"):
                await links[forger].call(command, numbered(forger, 1, delay_ms=later))
        answer = await links[biller].call(Command.PUBLISH, numbered(biller, 1, delay_ms=later))
        assert not PUBLISHED.unpack(answer)[-1] & PUBLISHED_DUPLICATE
        answer = await links[relay].call(Command.PUBLISH, numbered(relay, 2, delay_ms=later))
        assert not PUBLISHED.unpack(answer)[-1] & PUBLISHED_DUPLICATE, "who operates may go on"


@pytest.mark.parametrize("fenced", [True, False])
async def test_the_name_of_a_detached_transaction_is_whose_it_was_first(
    secured: Node, fenced: bool
) -> None:
    """Another's attempt would fence it; or, committed first, be taken for its own (Q9)."""
    topic, name = f"months-{fenced}".lower(), f"month:{fenced}"
    async with (
        admin_of(secured) as admin,
        user_of(secured, admin, f"closer-{topic}", f"allow publish {topic}") as owner,
        user_of(secured, admin, f"raider-{topic}", f"allow publish {topic}") as thief,
    ):
        await admin.admin.create_topic(topic)
        await owner.detached(name, attempt=1, fenced=fenced).send(topic, b"bill")
        with pytest.raises(Forbidden, match=r"another application's.*operate"):
            await thief.detached(name, attempt=9, fenced=fenced).send(topic, b"junk")
        await owner.commit_detached(name, [1], fenced=fenced)
        with pytest.raises(Forbidden, match="another application's"):
            await thief.detached(name, attempt=10, fenced=fenced).send(topic, b"junk")
        assert [message.body async for message in admin.read(topic)] == [b"bill"]
