"""What a fuzzed node with security on has besides: users to attack as, and its door to attack.

The user `fuzz` may do everything but grant, `honest` comes to see whether the node still works. The
admin attacks a node of its own: what it may rightly say can shut everybody else out.
"""

import asyncio
from contextlib import suppress
from random import Random

import msgspec

import ternmq
from ternmq.client.transport.user_login import UserLogin
from ternmq.security.access.secret import Secret
from ternmq.wire.actions import ACTIONS, Action
from ternmq.wire.messages.hello import (
    BY_NODE_SECRET,
    BY_SCRAM,
    BY_TOKEN,
    PROTOCOL_VERSION,
    Auth,
    Hello,
    ScramStart,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.fuzz.attacker import Attacker, Findings
from tests.fuzz.requests import TEXTS, payload, requests, topics
from tests.integration.processes import Node

ON = {"TERN_SECURITY": "true"}
PASSWORD = "of those who fuzz"
ROUNDS = 4096
ROUND = 40
METHODS = ["", BY_SCRAM, BY_TOKEN, BY_NODE_SECRET, "node-cert", "cert", "x" * 300]
APPS = ["fuzz", "", "%broker", "%delay", "a\x1b[2J", "x" * 4_000]


def admin_login(node: Node) -> UserLogin:
    text = (node.data_dir / "admin-password").read_text(encoding="ascii").strip()
    return UserLogin("admin", Secret(text))


async def make_users(node: Node) -> UserLogin:
    """`fuzz` and `honest`; the login of the first."""
    login = admin_login(node)
    url = node.url.replace("tern://", "tern://admin@")
    async with ternmq.connect(url, password=login.password.reveal()) as mq:
        for name in ("fuzz", "honest"):
            await mq.admin.add_user(name, PASSWORD, iterations=ROUNDS)
            for action in (*Action, "*"):
                if name == "honest" or action not in (
                    "*",
                    Action.GRANT,
                    Action.CONNECT,
                    Action.REPLICATE,
                ):
                    with suppress(ternmq.BadRequest):
                        await mq.admin.grant(name, str(action), "*")
    return UserLogin("fuzz", Secret(PASSWORD))


async def attack_as_admin(node: Node, seed: int, findings: Findings) -> None:
    """Users, grants and tokens, by who may."""
    random, names = Random(seed), topics(seed)
    asked = [
        (number, kind)
        for number, kind in requests()["meta"]
        if kind is not None and ACTIONS[Command(number)] is Action.GRANT
    ]
    chosen = random.choices(asked, k=ROUND)
    attacker = Attacker("127.0.0.1", node.port, findings, admin_login(node))
    try:
        await attacker.send([(number, payload(random, kind, names)) for number, kind in chosen])
    finally:
        await attacker.close()


async def attack_door(port: int, seed: int, findings: Findings) -> None:
    """First frames of every shape, some of them in the middle of a login; each is answered or the
    connection is closed, and nobody is let in."""
    random = Random(seed)
    for _ in range(ROUND // 4):
        attacker = Attacker("127.0.0.1", port, findings)
        try:
            await attacker.knock([_first_frame(random) for _ in range(random.choice([1, 2, 3]))])
        finally:
            await attacker.close()


def _first_frame(random: Random) -> tuple[int, bytes]:
    if random.random() < 0.1:
        return random.choice(list(Command)), random.randbytes(30)
    if random.random() < 0.3:
        return Command.AUTH, random.choice(
            [pack(Auth(proof=random.randbytes(32))), b"\x91" * 3_500, random.randbytes(40)]
        )
    start = ScramStart(
        user=random.choice(["fuzz", "admin", "nobody", *TEXTS]), nonce=random.randbytes(32)
    )
    proofs = [pack(start), random.randbytes(60), b"", b"eyJ.eyJ.x", b"\x91" * 2_000]
    hello = Hello(
        protocol=random.choice([PROTOCOL_VERSION, PROTOCOL_VERSION, 0, 99]),
        app=random.choice(APPS),
        version=random.choice(TEXTS),
        session=random.choice([b"f" * 16, b"", b"f" * 300]),
        host=random.choice(TEXTS),
        pid=random.choice([0, 2**31]),
        method=random.choice(METHODS),
        proof=random.choice(proofs),
    )
    values = list(msgspec.structs.astuple(hello))
    if random.random() < 0.3:
        values[random.randrange(len(values))] = random.choice([None, [[[1]]], 2**63, "x", b"\xff"])
    return Command.HELLO, msgspec.msgpack.encode(values)


async def is_shut(port: int) -> bool:
    """Still nobody comes in without a login."""
    attacker = Attacker("127.0.0.1", port, Findings())
    try:
        async with asyncio.timeout(20):
            hello = Hello(protocol=PROTOCOL_VERSION, app="eve", version="0", session=bytes(16))
            return not await attacker.knock([(Command.HELLO, pack(hello))])
    finally:
        await attacker.close()
