"""How a client logs in by a token, calling side; and how it stays when the token ends.

The token is read anew for every connection, so a file that somebody replaces works. Where another
one may come (a file, a function) it is sent in AUTH before the first ends, and the connection goes
on with everything on it. A token is not sent over a wire that others can listen to: without TLS
only to this machine.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ternmq.core.errors import Closed, TernError, Unauthorized, Unavailable
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.rpc.node_proof import Call, Channel
from ternmq.security.access.secret import Secret
from ternmq.wire.messages.hello import (
    BY_TOKEN,
    Auth,
    Hello,
    ProvenWelcome,
    TokenRenewed,
    TokenStart,
    Welcome,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack

BEFORE_S = 60.0
"""So long before its end a token is replaced, at a quarter of what is left at the latest."""
PAUSE_S = 0.5

log = get_logger()


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A user, and where its token comes from."""

    user: str
    read: Callable[[], Secret]
    """The token of this moment; may block, so it is called by a thread."""
    renews: bool
    """It may be another one next time."""

    def __post_init__(self) -> None:
        check_name("user", self.user)

    def greeting(self, hello: Hello) -> "TokenGreeting":
        return TokenGreeting(hello, self)


@dataclass(frozen=True, slots=True)
class TokenGreeting:
    """The HELLO of a client with a token."""

    hello: Hello
    login: TokenLogin

    async def greet(self, call: Call, address: str, channel: Channel) -> Welcome:
        if not channel.private:
            raise Unauthorized(
                f"the token of {self.login.user!r} is not sent to {address}: others could listen; "
                "connect by TLS (terns://…)"
            )
        loop = asyncio.get_running_loop()
        token = await loop.run_in_executor(None, self.login.read)
        start = TokenStart(token=token.reveal(), user=self.login.user)
        hello = msgspec.structs.replace(self.hello, method=BY_TOKEN, proof=pack(start))
        welcome = unpack(await call(Command.HELLO, pack(hello)), ProvenWelcome)
        if welcome.ends_in_ms and self.login.renews:
            TokenRenewal(call, self.login, address, loop).begin(welcome.ends_in_ms)
        return welcome


class TokenRenewal:
    """Renewals of one connection, as long as it stands: timers and futures, nobody waits for it."""

    def __init__(
        self, call: Call, login: TokenLogin, address: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._call = call
        self._login = login
        self._address = address
        self._loop = loop
        self._ends_at = 0.0

    def begin(self, ends_in_ms: int) -> None:
        left = ends_in_ms / 1000
        self._ends_at = self._loop.time() + left
        self._loop.call_later(max(PAUSE_S, left - min(BEFORE_S, left / 4)), self._read)

    def _read(self) -> None:
        read = self._loop.run_in_executor(None, self._login.read)
        read.add_done_callback(self._send)

    def _send(self, read: "asyncio.Future[Secret]") -> None:
        failed = None if read.cancelled() else read.exception()
        if read.cancelled() or failed is not None:
            self._again(repr(failed) if not isinstance(failed, TernError) else failed.message)
            return
        proof = Auth(proof=read.result().reveal().encode())
        answer = asyncio.ensure_future(self._call(Command.AUTH, pack(proof)))
        answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[bytearray]") -> None:
        failed = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or isinstance(failed, Closed | Unavailable):
            return  # The connection is gone; the next one begins with a token of its own.
        if failed is not None:
            self._again(str(failed))
            return
        self.begin(unpack(answer.result(), TokenRenewed).ends_in_ms)

    def _again(self, reason: str) -> None:
        """Until the end there is time to try."""
        left = self._ends_at - self._loop.time()
        if left > 0:
            log.warning("the next token is not taken", server=self._address, reason=reason)
            self._loop.call_later(max(PAUSE_S, left / 4), self._read)
