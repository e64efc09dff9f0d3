"""How a person or an application logs in, calling side: SCRAM in the first two frames.

HELLO names the user, the answer brings salt and rounds, AUTH the proof, and Welcome the server's:
one that did not know the user before is left at once. The slow step, the password with its salt,
is worked out once by a thread and kept for later connections. A password is not used over a wire
that others can listen to: without TLS only to this machine.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from ternmq.core.errors import ProtocolError, Unauthorized
from ternmq.core.ids import check_name
from ternmq.rpc.node_proof import Call, Channel, UserProof
from ternmq.security.access import scram
from ternmq.security.access.secret import Secret
from ternmq.wire.messages.hello import (
    BY_SCRAM,
    Auth,
    Challenge,
    Hello,
    ProvenWelcome,
    ScramSalt,
    ScramStart,
    Welcome,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack

SALTS_KEPT = 8


class Login(Protocol):
    """How a client says who it is."""

    @property
    def user(self) -> str:
        """The name of the user; the application that it is, where none is said."""

    def greeting(self, hello: Hello) -> UserProof: ...


@dataclass(slots=True)
class UserLogin:
    """A user, and the password by which it proves that it is it."""

    user: str
    password: Secret
    _salted: dict[tuple[bytes, int], bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_name("user", self.user)

    def greeting(self, hello: Hello) -> "UserGreeting":
        return UserGreeting(hello, self)

    async def salted(self, salt: bytes, iterations: int) -> bytes:
        key = (salt, iterations)
        if key not in self._salted:
            loop, password = asyncio.get_running_loop(), self.password.reveal()
            made = await loop.run_in_executor(None, scram.salted, password, *key)
            if len(self._salted) >= SALTS_KEPT:
                self._salted.clear()
            self._salted[key] = made
        return self._salted[key]


@dataclass(frozen=True, slots=True)
class UserGreeting:
    """The HELLO of a client that logs in, made anew for every connection."""

    hello: Hello
    login: UserLogin

    async def greet(self, call: Call, address: str, channel: Channel) -> Welcome:
        """Both legs; raises `Unauthorized` where either side is not who it should be."""
        if not channel.private:
            raise Unauthorized(
                f"the password of {self.login.user!r} is not used towards {address}: others could "
                "listen; connect by TLS (terns://…)"
            )
        start = ScramStart(user=self.login.user, nonce=secrets.token_bytes(scram.NONCE_SIZE))
        hello = pack(msgspec.structs.replace(self.hello, method=BY_SCRAM, proof=pack(start)))
        answer = bytes(await call(Command.HELLO, hello))
        try:
            salt = unpack(unpack(answer, Challenge).proof, ScramSalt)
        except ProtocolError:
            raise Unauthorized(
                "this is no server that asks who comes; connect without a user"
            ) from None
        key, talk = (
            await self.login.salted(salt.salt, salt.iterations),
            hello + answer + channel.shown,
        )
        proof = pack(Auth(proof=scram.client_proof(key, talk)))
        welcome = unpack(await call(Command.AUTH, proof), ProvenWelcome)
        if not scram.is_server(key, talk, welcome.proof):
            raise Unauthorized(
                f"{address} let us in without knowing {self.login.user!r}: it is not the server "
                "that it should be"
            )
        return welcome
