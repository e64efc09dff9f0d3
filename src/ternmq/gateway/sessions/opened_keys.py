"""Access keys that clients of this gateway came with, as the cluster knows them now.

A key is asked for when a call brings it, and again every second while it is in use, so that one
that was removed is refused within a second. With a key comes a token to be its user; the next one
is there before it ends. While no meta server answers, keys that are known go on for `KEPT_S`. Keys
that are not there are remembered for a second, and at most `ASKED_MAX` are asked for at a time:
whoever makes names up makes little work.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ternmq.client.client import Client
from ternmq.core.clock import Clock
from ternmq.core.errors import IdentityNotFound, Unavailable
from ternmq.core.log import get_logger
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.signatures import (
    CallSignature,
    check_signature,
    read_signature,
    wrong,
)
from ternmq.rpc.http2.calls import RemoteCall
from ternmq.security.access.secret import Secret

LOOK_S = 0.5
FRESH_S = 1.0
"""So old may be what is known of a key."""
KEPT_S = 600.0
IDLE_S = 60.0
UNKNOWN_MAX = 1_000
ASKED_MAX = 16

log = get_logger()


@dataclass(slots=True, eq=False)
class SignerKey:
    """One key that is there."""

    id: str
    user: str
    secret: Secret
    token: Secret
    token_id: str
    asked_at: float
    used_at: float


class OpenedKeys:
    """All keys that are in use here."""

    def __init__(self, mq: Client, clock: Clock, gone: Callable[[str], None]) -> None:
        """`mq` comes as a user that may grant access keys; `gone` is told of one that went."""
        self._mq = mq
        self._clock = clock
        self._gone = gone
        self._keys: dict[str, SignerKey] = {}
        self._unknown: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[SignerKey]] = {}

    async def signer(self, call: RemoteCall) -> SignerKey:
        """By whose key a call is signed; raises `Refused`."""
        signature = read_signature(call.metadata)
        key = self._keys.get(signature.access_key)
        now = self._clock.monotonic()
        if key is None or now - key.asked_at > FRESH_S:
            key = await self._ask(signature, now)
        check_signature(signature, key.secret.reveal())
        key.used_at = now
        return key

    async def run(self) -> None:
        """Ask again for what is in use; let go what is not."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._clock.monotonic()
            for id, key in list(self._keys.items()):
                if now - key.used_at > IDLE_S:
                    self._drop(id)
                elif now - key.asked_at > LOOK_S:
                    await asyncio.wait([self._begin(id)])

    async def _ask(self, signature: CallSignature, now: float) -> SignerKey:
        id = signature.access_key
        if now - self._unknown.get(id, now - FRESH_S) < FRESH_S:
            raise wrong()
        if id not in self._asking and len(self._asking) >= ASKED_MAX:
            raise Refused(Code.TOO_MANY_REQUESTS, "too many keys are looked up: try again")
        return await asyncio.shield(self._begin(id))

    def _begin(self, id: str) -> "asyncio.Task[SignerKey]":
        """One question for all who wait."""
        task = self._asking.get(id)
        if task is None:
            task = asyncio.create_task(self._look(id), name="tern-access-key")
            self._asking[id] = task
            task.add_done_callback(lambda done: self._asked(id, done))
        return task

    def _asked(self, id: str, done: "asyncio.Task[SignerKey]") -> None:
        del self._asking[id]
        if not done.cancelled():
            done.exception()  # Whoever waited has it; nobody may have.

    async def _look(self, id: str) -> SignerKey:
        held, now = self._keys.get(id), self._clock.monotonic()
        try:
            found = await self._mq.admin.open_access_key(id, held.token_id if held else "")
        except IdentityNotFound:
            self._drop(id)
            while len(self._unknown) >= UNKNOWN_MAX:
                del self._unknown[next(iter(self._unknown))]
            self._unknown.pop(id, None)
            self._unknown[id] = now
            raise wrong() from None
        except Unavailable:
            if held is None or now - held.asked_at > KEPT_S:
                raise
            return held
        if held is None:
            held = self._keys[id] = SignerKey(
                id=id,
                user=found.key.user,
                secret=Secret(found.key.secret),
                token=Secret(found.token),
                token_id=found.token_id,
                asked_at=now,
                used_at=now,
            )
        held.asked_at = now
        if found.token:
            held.token, held.token_id = Secret(found.token), found.token_id
        return held

    def _drop(self, id: str) -> None:
        if self._keys.pop(id, None) is not None:
            log.info("an access key is not used here any more", access_key=id)
            self._gone(id)
