"""The frame's bytes and the shapes of the first messages, as every released peer knows them."""

import msgspec
import pytest

from ternmq.core.errors import OverLimit
from ternmq.wire.frame import pack_header
from ternmq.wire.messages.hello import (
    Auth,
    Challenge,
    Empty,
    Hello,
    NodeClaim,
    Notice,
    Welcome,
    failure,
)
from ternmq.wire.messages.publish import PUBLISHED
from ternmq.wire.messages.pull import DELIVERED, LeftOut
from ternmq.wire.messages.replication import (
    MESSAGES,
    PULLS,
    REPLICATE,
    REPLICATE_SYNC,
    REPLICATED,
    Follow,
    Followed,
    LogHeld,
    LogPlan,
)
from ternmq.wire.messages.servers import Route, Routes
from ternmq.wire.messages.topics import Topic, TopicCreate
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack


def test_the_header_of_a_frame() -> None:
    header = pack_header(Command.PUBLISH, Flag.ONE_WAY, 0x0102030405060708, 0x0070B0C0)

    assert header.hex(" ", -4) == "c0b07000 28000400 08070605 04030201"


NUMBERS = {
    "HELLO": 1,
    "PING": 2,
    "NOTICE": 3,
    "AUTH": 4,
    "ROUTES": 10,
    "REGISTER": 11,
    "WITHDRAW": 12,
    "TOPIC_NEWS": 13,
    "GROUP_ID": 14,
    "GROUP_FORGET": 15,
    "EPOCH": 16,
    "RESERVE": 17,
    "TOPICS_GONE": 63,
    "STANDINGS": 18,
    "MEMBER_JOIN": 19,
    "TOPIC_CREATE": 20,
    "TOPIC_LIST": 21,
    "TOPIC_SET": 22,
    "TOPIC_DELETE": 23,
    "LIMIT_SET": 24,
    "LIMIT_LIST": 25,
    "MEMBER_LEAD": 26,
    "IN_SYNC_CHANGE": 27,
    "IN_SYNC_LEAVE": 28,
    "MEMBER_FORGET": 29,
    "GROUP_CREATE": 30,
    "GROUP_LIST": 31,
    "GROUP_DELETE": 33,
    "GROUP_RESET": 34,
    "GROUP_SET": 35,
    "DEAD_OPEN": 36,
    "DEAD_RESEND": 37,
    "DEAD_DELETE": 38,
    "GROUP_REPLAY": 39,
    "PUBLISH": 40,
    "CONFIRM": 41,
    "PUBLISH_ONCE": 42,
    "HALF": 43,
    "HALF_END": 44,
    "CHECK": 45,
    "HALF_LIST": 46,
    "CHECKER": 47,
    "DETACHED_END": 48,
    "FIND": 49,
    "JOIN": 50,
    "PULL": 51,
    "ACK": 52,
    "LEAVE": 53,
    "RENEW": 54,
    "GROUP_KEYS": 55,
    "KEY_RESUME": 56,
    "READ": 60,
    "SEEK": 61,
    "READ_DELIVERIES": 65,
    "REPLAY_OPEN": 66,
    "GROUP_RETRY": 62,
    "LEDGER": 70,
    "STATUS": 71,
    "TOPIC_FIGURES": 72,
    "GROUP_FIGURES": 73,
    "CONSUMER_PAUSE": 74,
    "REFUSED_OPEN": 75,
    "REFUSED_RESEND": 76,
    "REFUSED_DELETE": 77,
    "DELAY_CHANGE": 80,
    "DELAY_FIND": 81,
    "DELAY_COUNT": 82,
    "DELAY_LEDGER": 83,
    "FOLLOW": 90,
    "REPLICATE": 91,
    "REPLICATED": 92,
    "HANDOVER": 93,
    "BROKER_GROUP_DRAIN": 94,
    "BASE_OPEN": 95,
    "BASE_READ": 96,
    "PLACE": 100,
    "SLOTS_OPEN": 101,
    "USER_SET": 110,
    "USER_LIST": 111,
    "USER_REMOVE": 112,
    "GRANT_SET": 113,
    "TOKEN_CREATE": 114,
    "TOKEN_LIST": 115,
    "TOKEN_REVOKE": 116,
    "ROW_STATE": 120,
    "LEASES": 121,
    "WAITING": 122,
    "TRACE": 123,
    "DEAD_GROUPS": 124,
    "DEAD_RECALL": 125,
    "SESSIONS": 126,
    "SENDERS": 127,
    "DISCONNECT": 128,
    "DELAY_SHOW": 129,
    "FIGURES": 130,
    "SETTLE": 131,
    "EXTEND": 132,
    "DOC_LIST": 140,
    "DOC_GET": 141,
    "DOC_PUT": 142,
    "DOC_DELETE": 143,
    "FIGURES_PAGE": 144,
    "GROUP_TIMES": 145,
    "TOPIC_KEY_MAKE": 150,
    "TOPIC_KEY_FIND": 151,
    "TOPIC_KEY_LIST": 152,
    "KEY_ERASE": 153,
    "TOPIC_KEY_REWRAP": 154,
    "WHO_AM_I": 170,
    "TOKEN_END": 171,
    "ACCESS_KEY_SET": 175,
    "ACCESS_KEY_LIST": 176,
    "ACCESS_KEY_OPEN": 177,
}


def test_the_command_numbers() -> None:
    assert {command.name: command.value for command in Command} == NUMBERS


def test_the_flags() -> None:
    assert {flag.name: flag.value for flag in Flag} == {"ANSWER": 1, "ERROR": 2, "ONE_WAY": 4}


def test_a_hello_of_release_0_1_is_one_without_a_proof() -> None:
    old = "9601a473 686f70a3 302e31c4 10000000 00000000 00000000 00000000 00a16807"
    hello = Hello(protocol=1, app="shop", version="0.1", session=bytes(16), host="h", pid=7)

    assert unpack(bytes.fromhex(old), Hello) == hello
    assert (hello.method, hello.proof) == ("", b"")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            Hello(protocol=1, app="shop", version="0.1", session=bytes(16), host="h", pid=7),
            "9801a473 686f70a3 302e31c4 10000000 00000000 00000000 00000000 00a16807 a0c400",
        ),
        (
            NodeClaim(nonce=b"nn", kind="delay", broker_group="later"),
            "93c4026e 6ea56465 6c6179a5 6c617465 72",
        ),
        (
            Challenge(nonce=b"nn", proof=b"pp", role="meta"),
            "94c4026e 6ec40270 70a46d65 7461a0",
        ),
        (Auth(proof=b"pp"), "91c40270 70"),
        (
            Welcome(protocol=1, version="0.1", role="broker", node="n", broker_group="a", epoch=9),
            "9901a330 2e31a662 726f6b65 72a16ea1 6109cd0b b800a0",
        ),
        (Notice(kind="stopping"), "92a87374 6f707069 6e67a0"),
        (
            Routes(version=3, servers=[Route(broker_group="a", address="h:1")]),
            "97039195 a161a368 3a31a66d 61737465 72a87265 616c7469 6d65c290 c0808080",
        ),
        (
            TopicCreate(name="t"),
            "92a1749f c290ce00 40000000 00a67265 66757365 c2c20000 90c0a000 a0",
        ),
        (
            Topic(id=5, name="t", created_at_ms=6),
            "9405a174 069fc290 ce004000 000000a6 72656675 7365c2c2 000090c0 a000a0",
        ),
        (Empty(), "90"),
        (
            Follow(
                broker_group="a",
                member="m",
                epoch=3,
                logs=[LogHeld(log=0, start=0, end=9, safe=8, epochs=[(2, 0)])],
            ),
            "94a161a1 6d039195 00000908 91920200",
        ),
        (
            Followed(epoch=3, logs=[LogPlan(log=1, cut_to=8, start=0, epochs=[(2, 0)])]),
            "93039194 01080091 920200c4 00",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Record) else "",
)
def test_messages_are_arrays_in_field_order(record: Record, expected: str) -> None:
    assert pack(record).hex(" ", -4) == expected


def test_routes_of_release_0_1_are_still_read() -> None:
    told = "95039195 a161a368 3a31a66d 61737465 72a87265 616c7469 6d65c290 c080"

    found = unpack(bytes.fromhex(told), Routes)

    assert found == Routes(version=3, servers=[Route(broker_group="a", address="h:1")])


def test_a_topic_of_before_there_was_encryption_is_still_read() -> None:
    old = bytes.fromhex("9405a174069cc290ce004000000000a6726566757365c2c2000090c0")

    assert unpack(old, Topic) == Topic(id=5, name="t", created_at_ms=6)


def test_a_topic_of_the_first_release_is_still_read() -> None:
    old = "9405a1740693c290ce00400000"
    before_made_by = "9405a174069ec290ce004000000000a6726566757365c2c2000090c0a000"

    for told in (old, before_made_by):
        assert unpack(bytes.fromhex(told), Topic) == Topic(id=5, name="t", created_at_ms=6)


def test_a_welcome_of_the_first_release_is_still_read() -> None:
    old = bytes.fromhex("9801a3302e31a662726f6b6572a16ea16109cd0bb800")

    assert unpack(old, Welcome) == Welcome(
        protocol=1, version="0.1", role="broker", node="n", broker_group="a", epoch=9
    )


def test_a_failure_is_code_message_details() -> None:
    packed = failure(OverLimit("slow down", limit=3))

    assert packed.hex(" ", -4) == (
        "93aa6f76 65725f6c 696d6974 a9736c6f 7720646f 776e81a5 6c696d69 7403"
    )


def test_the_fixed_parts_of_hot_answers() -> None:
    published = PUBLISHED.pack(1, 2, 3, 4, 1)
    delivered = DELIVERED.pack(2, 0, 77)

    assert published.hex(" ", -8) == (
        "0100000000000000 0200000000000000 0300000000000000 0400000001000000"
    )
    assert delivered.hex(" ", -8) == "0200000000000000 4d00000000000000"


def test_what_is_left_out_of_the_answer_to_a_pull() -> None:
    left = LeftOut(
        lease=7, lane=3, base=1_000, stored_at_ms=50, ranges=[(0, 5), (7, 8)], attempts=[1, 2]
    )

    assert (DELIVERED.pack(0, 1, 0) + msgspec.msgpack.encode([left])).hex(" ", -8) == (
        "0000000001000000 0000000000000000 91970703cd03e832 9292000592070892 010290"
    )


def test_the_heads_of_replicated_bytes_and_their_answer() -> None:
    replicate = REPLICATE.pack(3, 4096, 2048, 1024, PULLS, REPLICATE_SYNC)
    replicated = REPLICATED.pack(3, 8192, MESSAGES, 0)

    assert replicate.hex(" ", -8) == (
        "0300000000000000 0010000000000000 0008000000000000 0004000000000000 0100010000000000"
    )
    assert replicated.hex(" ", -8) == "0300000000000000 0020000000000000 0000000000000000"
