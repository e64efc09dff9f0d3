"""A client of the cluster for everybody who asks: actions run as the user who ordered them.

Who asks has a token: of a session of the console, or in the header of a call. Each token
has one client that logs in by it, so servers decide by that user's rights, count by that user's
quota, and write that user's name into their audit. A client that nobody uses for a while is closed;
there are at most `CALLERS_MAX`. What a user may is asked anew every few seconds while it is used.

A token that the cluster refuses is an `Unauthorized` here; nothing is kept of it. Never looks into
a token but for the name in it, which the cluster checks.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import msgspec

from ternmq.api.caller_rights import CallerRights
from ternmq.api.http_consumers import HttpConsumers
from ternmq.api.service import ApiService
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.caller_watch import CallerWatch
from ternmq.client.client import Client, connect
from ternmq.core.errors import BadName, OverLimit, TernError, Unauthorized, Unavailable
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.security.access.secret import Secret
from ternmq.security.access.token import TOKEN_SIZE_MAX

CALLERS_MAX = 300
IDLE_S = 60.0
RIGHTS_S = 2.0
"""So old may be what is known of somebody's rights; servers hear of changes within a second."""
OPEN_S = 10.0

log = get_logger()


class Caller:
    """A user who asks, and the parts that work for it."""

    def __init__(self, service: ApiService, key: str) -> None:
        self.service = service
        self.key = key
        """The same for all that one token asks; of a token nothing can be told by it."""
        self.uses = 0
        self.used_at = self.checked_at = service.clock.monotonic()
        self._checking = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def rights(self) -> CallerRights:
        return self.service.rights

    @property
    def idle(self) -> bool:
        return not self.uses and not self.service.consumers.busy

    async def start(self) -> None:
        """Log in; raises `Unauthorized` where the cluster does not know this token."""
        try:
            async with asyncio.timeout(OPEN_S):
                await self.service.mq
                self.rights.learn(await self.service.mq.admin.whoami())
        except TimeoutError:
            raise Unavailable("the cluster did not answer in time") from None
        running = asyncio.create_task(self.service.consumers.run(), name="http consumers")
        self._tasks.append(running)

    async def check(self) -> None:
        """Know the rights of now; `Unauthorized` for who was sent away."""
        clock = self.service.clock
        async with self._checking:
            if clock.monotonic() - self.checked_at < RIGHTS_S:
                return
            with suppress(Unavailable):  # Servers go on with what they know, too.
                self.rights.learn(await self.service.mq.admin.whoami())
            self.checked_at = clock.monotonic()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TernError):
            await self.service.consumers.close()
        await self.service.mq.close()


class Callers:
    """Everybody who asks one console."""

    def __init__(self, url: str, base: ApiService) -> None:
        """`url`: of the cluster, without a user; `base`: what they share."""
        self._url = url
        self._base = base
        self._open: dict[str, Caller] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def using(self, user: str, token: Secret) -> AsyncIterator[Caller]:
        """The caller with this token, while a request is answered."""
        caller = await self._get(user, token)
        caller.uses += 1
        try:
            await self._checked(caller)
            yield caller
        finally:
            caller.uses -= 1
            caller.used_at = self._base.clock.monotonic()

    async def forget(self, token: Secret) -> None:
        """Nobody has this token any more."""
        caller = self._open.pop(key_of(token), None)
        if caller is not None:
            await caller.close()

    async def run(self) -> None:
        """Close what nobody uses."""
        while True:
            await asyncio.sleep(IDLE_S / 4)
            now = self._base.clock.monotonic()
            for key, caller in list(self._open.items()):
                if caller.idle and now - caller.used_at > IDLE_S:
                    del self._open[key]
                    await caller.close()

    async def close(self) -> None:
        callers, self._open = list(self._open.values()), {}
        await asyncio.gather(*(caller.close() for caller in callers), return_exceptions=True)

    async def _get(self, user: str, token: Secret) -> Caller:
        key = key_of(token)
        found = self._open.get(key)
        if found is not None:
            return found
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._open:
                    await self._make_room()
                    self._open[key] = await self._opened(user, token, key)
                return self._open[key]
        finally:
            if not lock.locked():
                self._opening.pop(key, None)

    async def _opened(self, user: str, token: Secret, key: str) -> Caller:
        mq = connect(with_user(self._url, user), token=token)
        caller = Caller(service_for(self._base, mq), key)
        try:
            await caller.start()
        except BaseException:
            await caller.close()
            raise
        return caller

    async def _checked(self, caller: Caller) -> None:
        try:
            await caller.check()
        except Unauthorized:
            if self._open.get(caller.key) is caller:
                del self._open[caller.key]
            await caller.close()
            raise

    async def _make_room(self) -> None:
        if len(self._open) < CALLERS_MAX:
            return
        idle = [(caller.used_at, key) for key, caller in self._open.items() if caller.idle]
        if not idle:
            raise OverLimit(f"{CALLERS_MAX} people and programs are here already; try again later")
        await self._open.pop(min(idle)[1]).close()


def service_for(base: ApiService, mq: Client) -> ApiService:
    """The parts of one caller, who has no rights yet."""
    rights = CallerRights()
    return replace(
        base,
        mq=mq,
        watch=CallerWatch(base.watch, rights),
        browser=MessageBrowser(mq, base.clock),
        consumers=HttpConsumers(mq, base.clock),
        rights=rights,
    )


def key_of(token: Secret) -> str:
    return hashlib.sha256(token.reveal().encode()).hexdigest()[:32]


def with_user(url: str, user: str) -> str:
    """A url of a cluster with the user who comes."""
    return url.replace("://", f"://{user}@", 1)


def claims_in(text: str) -> dict[str, object]:
    """What a token says, proven by nothing: the cluster checks it."""
    parts = text.split(".")
    if len(text) > TOKEN_SIZE_MAX or len(parts) != 3:
        raise Unauthorized("this is no token: 'tern token create' makes one")
    try:
        padded = parts[1].encode() + b"=" * (-len(parts[1]) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=dict[str, object])
    except (ValueError, binascii.Error, UnicodeEncodeError, msgspec.MsgspecError):
        raise Unauthorized("this is no token: 'tern token create' makes one") from None


def user_in(text: str, claim: str = "sub") -> str:
    """Whom a token names: our own by `sub`, one of an issuer by the claim that is set."""
    claims = claims_in(text)
    named = claims.get("sub" if claims.get("iss") == "tern" else claim)
    try:
        return check_name("user", named if isinstance(named, str) else "")
    except BadName:
        raise Unauthorized("this token names no user") from None
