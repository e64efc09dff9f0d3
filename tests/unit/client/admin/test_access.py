"""Users, as an operator makes them."""

from types import SimpleNamespace
from typing import Any

from ternmq.client.admin.access import AccessAdmin
from ternmq.security.access.scram import ITERATIONS_MIN, SALT_SIZE
from ternmq.wire.messages.limits import User, UserSet


async def test_users_with_one_password_have_salts_of_their_own() -> None:
    asked: list[UserSet] = []

    async def ask_meta(command: int, wanted: UserSet, answer: type[User]) -> User:
        asked.append(wanted)
        return User(name=wanted.name, user=True, apps=[], grants=[])

    cluster: Any = SimpleNamespace(ask_meta=ask_meta)
    for name in ("alice", "bob"):
        await AccessAdmin(cluster).add_user(name, "correct horse", iterations=ITERATIONS_MIN)

    salts = {wanted.verifier.salt for wanted in asked if wanted.verifier is not None}
    assert len(salts) == 2
    assert {len(salt) for salt in salts} == {SALT_SIZE}
