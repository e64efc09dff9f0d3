"""Rights over real sockets: every command with every kind of user (S4.4), batches, live changes.

The requests are made from the records themselves, so a new command is in this test as soon as it is
in docs/wire-protocol.md.
"""

import json
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from ternmq.batch.encoder import Origin, Outgoing, RowOrigin, encode_messages
from ternmq.batch.layout import DIRECTORY_ENTRY_SIZE, FIXED_SIZE, Column, Encoding
from ternmq.core.errors import BadRequest, Forbidden, ProtocolError, Unauthorized
from ternmq.core.ids import ProducerId
from ternmq.rpc.guarded.answer_filter import NARROWED
from ternmq.security.access.access_book import TOKEN_KEYS, AccessEntry
from ternmq.security.access.scram import nobody
from ternmq.wire.actions import ACTIONS, ALSO_BY, Action
from ternmq.wire.messages.delays import DelayChange, DelayFind, DelayLedgerQuery
from ternmq.wire.messages.publish import Find
from ternmq.wire.messages.pull import Join
from ternmq.wire.messages.read import Read
from ternmq.wire.messages.topics import TopicNamed
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack
from tests.fuzz.requests import requests
from tests.unit.rpc.guarded.guarded_server import GuardedServer, user
from tests.waiting import until

KINDS: dict[Command, type[Record] | None] = {
    Command(number): kind for taken in requests().values() for number, kind in taken
}
BATCHES = {Command.PUBLISH, Command.PUBLISH_ONCE, Command.HALF}
BY_SUBSCRIPTION = {Command.PULL, Command.ACK, Command.RENEW, Command.LEAVE}
BY_BROKER = {Command.HALF_END, Command.DETACHED_END, Command.CHECKER}
LISTS = {*NARROWED, Command.TOPIC_LIST, Command.STANDINGS} - {Command.STATUS}
OF_ONESELF = {Command.WHO_AM_I, Command.TOKEN_END}
FOR_EVERYBODY = (
    {Command.REPLICATE, Command.CHECK} | BY_SUBSCRIPTION | BY_BROKER | LISTS | OF_ONESELF
)
CHECKED = [
    command
    for command in KINDS
    if command not in FOR_EVERYBODY and ACTIONS[command] is not Action.REPLICATE
]


def request(command: Command) -> bytes:
    """A request about topic `t`, group `g`; named `t` where it is something else."""
    if command in BATCHES:
        return batch("t")
    kind = KINDS[command]
    assert kind is not None, command
    shape = inspect.type_info(kind)
    assert isinstance(shape, inspect.StructType)
    return msgspec.msgpack.encode([value(each.type, each.name) for each in shape.fields])


def value(kind: Any, name: str) -> Any:
    match kind:
        case inspect.IntType():
            return 1
        case inspect.StrType():
            return "g" if name in ("group", "into") else "t"
        case inspect.BytesType():
            return b"x" * 16
        case inspect.BoolType():
            return False
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.ListType():
            return [value(kind.item_type, name)]
        case inspect.TupleType():
            return [value(each, name) for each in kind.item_types]
        case inspect.UnionType():
            return None
        case inspect.DictType():
            return {}
        case inspect.StructType():
            return [value(each.type, each.name) for each in kind.fields]
    raise AssertionError(kind)


def batch(
    topic: str, app: str = "shop", *, origin_app: str = "", origin_address: bytes = b""
) -> bytes:
    origins = [RowOrigin(origin_app, origin_address)] if origin_app or origin_address else []
    made = encode_messages(
        [Outgoing(body=b"b", key="k")],
        origin=Origin(topic=topic, app=app, producer=ProducerId(1, 2)),
        first_sequence=0,
        encoding=Encoding.PLAIN,
        origins=origins,
    )
    return bytes(made)


@pytest.mark.parametrize("command", CHECKED, ids=lambda command: command.name)
async def test_a_command_needs_its_right_and_nothing_less(
    server: GuardedServer, command: Command
) -> None:
    """Nobody (without a login): `test_without_a_login_no_command_is_heard`."""
    action, payload = ACTIONS[command], request(command)
    leave_out = (action, ALSO_BY.get(command), "connect", "replicate")
    others = [f"allow {each} *" for each in Action if each not in leave_out]
    if action is Action.DESCRIBE:  # Which every other right on a topic brings along.
        others = ["allow grant *", "allow cluster *"]
    server.book.put("nobody", user(apps=("shop",)))
    server.book.put("other", user(*others, apps=("shop",)))
    server.book.put("elsewhere", user(f"allow {action} elsewhere", apps=("shop",)))
    denied = [f"deny {each} *" for each in (action, ALSO_BY.get(command)) if each]
    server.book.put("denied", user("allow * *", *denied, apps=("shop",)))
    for name in ("nobody", "other", "elsewhere", "denied"):
        connection = await server.connect(name, app="shop")
        with pytest.raises(Forbidden, match=f"{name}.*{action}"):
            await connection.call(command, payload)
        await connection.close()
    assert not server.frames, "no handler has seen it"
    server.answers[command] = lambda: pack(Record())
    server.book.put("shop", user(f"allow {action} *"))
    connection = await server.connect("shop")
    if command not in NARROWED:
        await connection.call(command, payload)
        assert server.frames == [command]
    await connection.close()


@pytest.mark.parametrize(
    "command",
    [command for command in KINDS if ACTIONS[command] is Action.REPLICATE],
    ids=lambda command: command.name,
)
async def test_what_servers_ask_cannot_be_granted(server: GuardedServer, command: Command) -> None:
    server.book.put("admin", user("allow * *"))
    connection = await server.connect("admin")
    with pytest.raises(Unauthorized, match="only servers"):
        await connection.call(command, b"")
    await connection.close()
    assert not server.frames


@pytest.mark.parametrize(
    "command",
    sorted(FOR_EVERYBODY - NARROWED.keys() - {Command.REPLICATE, Command.CHECK}),
    ids=lambda command: Command(command).name,
)
async def test_what_is_checked_elsewhere_reaches_its_handler(
    server: GuardedServer, command: Command
) -> None:
    server.book.put("nobody", user())
    connection = await server.connect("nobody")
    await connection.call(command, b"")
    await connection.close()


async def test_every_command_is_in_one_of_these_tests() -> None:
    control = {Command.HELLO, Command.PING, Command.NOTICE, Command.AUTH}
    servers = {command for command, action in ACTIONS.items() if action is Action.REPLICATE}

    assert {*CHECKED, *FOR_EVERYBODY, *servers, *control} == set(Command)


@pytest.mark.parametrize("topic", ["%control", "%access.admin", "%limit.send.a", "%later.x", "%"])
async def test_topics_of_servers_are_reached_by_nobody(server: GuardedServer, topic: str) -> None:
    server.book.put("admin", user("allow * *"))
    connection = await server.connect("admin")
    wanted = Read(topic=topic, sequence=0, rows_max=1, size_max=1)
    for command, payload in (
        (Command.READ, pack(wanted)),
        (Command.JOIN, pack(Join(group="g", topics=[topic]))),
        (Command.PUBLISH, batch(topic, "admin")),
    ):
        with pytest.raises(Forbidden, match="belongs to the servers"):
            await connection.call(command, payload)
    await connection.close()
    assert not server.frames


async def test_dead_letters_are_reached_by_who_may_operate_on_their_group(
    server: GuardedServer,
) -> None:
    server.topics.there.add("%dead.g")
    read = pack(Read(topic="%dead.g", sequence=0, rows_max=1, size_max=1))
    server.book.put("reader", user("allow read *", "allow subscribe *"))
    server.book.put("operator", user("allow operate group:g"))
    reader, operator = await server.connect("reader"), await server.connect("operator")
    with pytest.raises(Forbidden, match="operate on group 'g'"):
        await reader.call(Command.READ, read)
    await operator.call(Command.READ, read)
    with pytest.raises(Forbidden, match="belongs to the servers"):
        await operator.call(Command.PUBLISH, batch("%dead.g", "operator"))
    await reader.close()
    await operator.close()


async def test_a_forged_sender_is_refused(server: GuardedServer) -> None:
    server.book.put("shop", user("allow publish *", apps=("shop", "shop-*")))
    connection = await server.connect("shop")
    for app in ("shop", "shop-2"):
        await connection.call(Command.PUBLISH, batch("t", app))
    for app in ("bank", "%delay", ""):
        with pytest.raises(Forbidden, match="cannot be the application"):
            await connection.call(Command.PUBLISH, batch("t", app))
    assert len(server.frames) == 2
    await connection.close()


async def test_a_batch_that_says_who_else_sent_it_needs_operate(server: GuardedServer) -> None:
    server.book.put("shop", user("allow publish t"))
    connection = await server.connect("shop")
    plain, signed = batch("t"), batch("t", origin_app="bank")
    await connection.call(Command.PUBLISH, plain)
    with pytest.raises(Forbidden, match="operate on topic 't'"):
        await connection.call(Command.PUBLISH, signed)
    server.book.put("shop", user("allow publish t", "allow operate t"))
    await connection.call(Command.PUBLISH, signed)
    await connection.close()


async def test_a_forged_address_needs_operate_though_no_application_is_forged(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user("allow publish t"))
    connection = await server.connect("shop")
    whole = batch("t", origin_app="bank", origin_address=b"a" * 18)
    at = FIXED_SIZE + len("t") + len("shop")
    at += -at % 8
    forged = bytearray(whole)
    for entry in range(at, at + DIRECTORY_ENTRY_SIZE * whole[202], DIRECTORY_ENTRY_SIZE):
        if forged[entry] == Column.ORIGIN_APP:
            forged[entry] = Column.TRACE
    assert bytes(forged) != whole
    with pytest.raises(Forbidden, match="operate on topic 't'"):
        await connection.call(Command.PUBLISH, bytes(forged))
    assert not server.frames
    await connection.close()


async def test_making_a_topic_by_using_it_needs_manage(server: GuardedServer) -> None:
    server.book.put("shop", user("allow publish *", "allow subscribe *"))
    connection = await server.connect("shop")
    join = pack(Join(group="shop", topics=["new"]))
    for command, payload in ((Command.PUBLISH, batch("new")), (Command.JOIN, join)):
        with pytest.raises(Forbidden, match="manage on topic 'new'"):
            await connection.call(command, payload)
    server.topics.there.add("new")
    await connection.call(Command.PUBLISH, batch("new"))
    server.topics.there.discard("new")
    server.guard.topic_gone()
    with pytest.raises(Forbidden, match="manage"):
        await connection.call(Command.PUBLISH, batch("new"))
    await connection.close()


@pytest.mark.parametrize("command", ALSO_BY, ids=lambda command: Command(command).name)
async def test_a_consumer_does_besides_what_consumers_need(
    server: GuardedServer, command: Command
) -> None:
    server.book.put("shop", user("allow subscribe t", "allow subscribe group:g"))
    server.book.put("half", user("allow subscribe group:g"))
    connection, other = await server.connect("shop"), await server.connect("half")
    await connection.call(command, request(command))
    with pytest.raises(Forbidden):
        await other.call(command, request(command))
    await connection.close()
    await other.close()


@pytest.mark.parametrize("command", ALSO_BY, ids=lambda command: Command(command).name)
async def test_what_is_denied_is_not_done_by_being_a_consumer(
    server: GuardedServer, command: Command
) -> None:
    action = ACTIONS[Command(command)]
    server.book.put("shop", user("allow subscribe *", f"deny {action} t"))
    connection = await server.connect("shop")
    with pytest.raises(Forbidden, match=f"a line denies {action} topic:t"):
        await connection.call(command, request(Command(command)))
    assert not server.frames
    server.book.put("shop", user("allow subscribe *", f"deny {action} other"))
    await connection.call(command, request(Command(command)))
    await connection.close()


async def test_who_operates_and_consumes_reads_dead_letters(server: GuardedServer) -> None:
    """That it may consume everything must not make its right on the group count for nothing."""
    server.book.put("shop", user("allow subscribe *", "allow operate group:g"))
    connection = await server.connect("shop")
    await connection.call(
        Command.READ, pack(Read(topic="%dead.g", sequence=0, rows_max=1, size_max=1))
    )
    await connection.close()


@pytest.mark.parametrize("size", [0, 1, 127, 207])
async def test_what_is_too_short_for_a_batch_breaks_the_rules(
    server: GuardedServer, size: int
) -> None:
    server.book.put("shop", user("allow publish *"))
    connection = await server.connect("shop")
    with pytest.raises(ProtocolError, match="cannot be a batch"):
        await connection.call(Command.PUBLISH, bytes(size))


async def test_a_right_that_is_given_or_taken_counts_for_the_next_request(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user())
    connection = await server.connect("shop")
    for lines, refused in (
        (("allow publish t",), False),
        (("allow publish t", "deny publish t"), True),
        (("allow publish *",), False),
        ((), True),
    ):
        server.book.put("shop", user(*lines))
        if refused:
            with pytest.raises(Forbidden):
                await connection.call(Command.PUBLISH, batch("t"))
        else:
            await connection.call(Command.PUBLISH, batch("t"))
    await connection.close()


async def test_who_waits_for_what_it_may_not_have_any_more_is_closed(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user("allow subscribe t"))
    server.book.put("other", user("allow subscribe t"))
    joined, idle = await server.connect("shop"), await server.connect("other")
    await joined.call(Command.JOIN, pack(Join(group="shop", topics=["t"])))
    server.book.put("shop", user())
    server.book.put("other", user())
    await until(lambda: joined.closed)

    with pytest.raises(Forbidden, match="may not subscribe any more"):
        await joined.call(Command.PING)
    await idle.call(Command.PING)
    await idle.close()


async def test_refusals_and_orders_are_in_the_audit_log(server: GuardedServer) -> None:
    server.book.put("admin", user("allow manage *"))
    connection = await server.connect("admin")
    await connection.call(Command.TOPIC_DELETE, request(Command.TOPIC_DELETE))
    for _ in range(3):
        with pytest.raises(Forbidden):
            await connection.call(Command.GROUP_RESET, request(Command.GROUP_RESET))
    await connection.close()
    await server.guard.audit.close()
    lines = [
        json.loads(line) for line in server.audit_file.read_text(encoding="utf-8").splitlines()
    ]

    assert [(line["event"], line.get("command"), line.get("about")) for line in lines] == [
        ("login", None, None),
        ("manage", "TOPIC_DELETE", ["topic:t"]),
        ("refused", "GROUP_RESET", None),
        ("refused", "GROUP_RESET", None),
    ]
    assert lines[-1]["times"] == 2


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (Command.FIND, pack(Find(key="k"))),
        (Command.READ_DELIVERIES, b""),
        (Command.DELAY_LEDGER, pack(DelayLedgerQuery())),
        (Command.DELAY_FIND, pack(DelayFind())),
        (Command.DELAY_CHANGE, pack(DelayChange(action="cancel", id=b"x" * 16))),
    ],
    ids=lambda each: each.name if isinstance(each, Command) else "",
)
async def test_who_is_denied_one_topic_does_not_ask_about_all(
    server: GuardedServer, command: Command, payload: bytes
) -> None:
    server.book.put("shop", user("allow * *", "deny read secret.*", "deny delay secret.*"))
    connection = await server.connect("shop")
    with pytest.raises(Forbidden, match=r"denies \w+ topic:secret\.\*: ask for one topic by name"):
        await connection.call(command, payload)
    assert not server.frames
    server.book.put("shop", user("allow * *", "deny publish secret.*", "deny read group:secret"))
    await connection.call(command, payload)
    await connection.close()


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (Command.READ, pack(Read(topic="x" * 100_000, sequence=0, rows_max=1, size_max=1))),
        (Command.TOPIC_DELETE, pack(TopicNamed(name="x" * 256))),
        (Command.JOIN, pack(Join(group="g" * 256, topics=["t"]))),
    ],
    ids=lambda each: each.name if isinstance(each, Command) else "",
)
async def test_a_name_that_nobody_can_have_is_not_kept_and_not_said_again(
    server: GuardedServer, command: Command, payload: bytes
) -> None:
    server.book.put("shop", user("allow subscribe elsewhere"))
    connection = await server.connect("shop")
    with pytest.raises(BadRequest, match="255 is the most") as caught:
        await connection.call(command, payload)
    assert len(caught.value.message) < 200
    await connection.close()
    await server.guard.audit.close()
    assert server.audit_file.stat().st_size < 1_000


async def test_all_servers_have_one_salt_for_a_user_that_is_not_there(
    server: GuardedServer,
) -> None:
    """Where it comes from is in the registry; until then it is the server's own (S4.7)."""
    before = server.guard.verifier("nobody")
    server.book.put(TOKEN_KEYS, AccessEntry(alike="shared"))
    after = server.guard.verifier("nobody")
    assert after == nobody(b"shared", "nobody")
    assert after.salt != before.salt
