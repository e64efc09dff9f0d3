"""Unfenced detached transactions: many attempts of one name side by side, some of which count.

For writers like Spark's, whose tasks are tried again and whose driver may die at any moment. A
commit names the attempts that count; it is decided once per name, and whoever commits the name
later, with whatever attempts, is told what was decided first. Attempts that do not count are rolled
back. A write that goes over several broker groups is decided on one of them: it remembers the
attempts elsewhere too, so that somebody else can finish the commit there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ternmq.batch.half import detached_key
from ternmq.broker.transactions.half_endings import HalfEndings
from ternmq.core.errors import BadRequest, OverLimit, TransactionEnded, TransactionNotFound
from ternmq.security.access.rights import Rights
from ternmq.storage.messages.transactions import (
    OpenTransaction,
    TransactionOutcome,
    TransactionTable,
)
from ternmq.wire.actions import Action
from ternmq.wire.messages.transactions import DetachedEnd, HalfEnded, HalfState

ROLLED_BACK_AT_ONCE = 1_000
ATTEMPTS_MAX = 10_000
"""Named in one request: a write of Spark has one for each of its tasks."""
KnownTransactions = dict[int, OpenTransaction | TransactionOutcome]


def committed(known: KnownTransactions) -> list[int]:
    """The attempts that count, in their order, if the name is committed."""
    for one in known.values():
        if isinstance(one, TransactionOutcome) and one.state == "committed":
            return one.attempts or [at for at, other in known.items() if other is one]
    return []


class UnfencedAttempts:
    """DETACHED_END for names whose attempts stand side by side."""

    def __init__(self, half_endings: HalfEndings, halves: TransactionTable) -> None:
        self._half_endings = half_endings
        self._halves = halves
        self._claims: dict[str, asyncio.Future[None]] = {}
        self._new_future: Callable[[], asyncio.Future[None]]
        self._new_future = asyncio.get_running_loop().create_future

    async def end_detached(self, request: DetachedEnd, rights: Rights | None = None) -> HalfEnded:
        """The DETACHED_END command; of fenced names only one attempt can be open."""
        if max(len(request.attempts), len(request.elsewhere)) > ATTEMPTS_MAX:
            raise OverLimit(f"at most {ATTEMPTS_MAX} attempts are named in one request")
        if request.fenced:
            return await self._half_endings.end_detached(request, rights)
        return await self.end(request, rights)

    async def end(self, request: DetachedEnd, rights: Rights | None = None) -> HalfEnded:
        """Commit, abort, or look how it stands; one at a time for each name."""
        async with self._claim(request.name):
            known = self._halves.attempts(request.name)
            self._half_endings.check_ending(rights, known.values())
            before = committed(known)
            if request.action == "look":
                return _answer(before, repeated=bool(before), otherwise="open")
            if not before:
                _check_unseen(rights, request, known)
            if request.action == "rollback":
                return await self._abort(request, known, before)
            attempts = before or await self._commit(request, known)
            await self._roll_back_others(request.name, attempts)
            return _answer(attempts, repeated=bool(before))

    async def _commit(self, request: DetachedEnd, known: KnownTransactions) -> list[int]:
        name, wanted = request.name, list(dict.fromkeys(request.attempts))
        if not wanted and not request.elsewhere:
            raise BadRequest(f"a commit of {name!r} must say which attempts count")
        counting = list(dict.fromkeys(wanted + request.elsewhere))
        gone = [at for at in counting if isinstance(known.get(at), TransactionOutcome)]
        if gone:
            raise TransactionEnded(f"attempts {gone} of {name!r} are gone", state="rolled_back")
        missing = [at for at in wanted if at not in known]
        if missing:
            raise TransactionNotFound(f"attempts {missing} of {name!r} are not known here")
        opened = [one for at in counting if isinstance(one := known.get(at), OpenTransaction)]
        keys = [detached_key(name, at) for at in counting]
        await self._half_endings.decide("commit", opened, keys=keys)
        return counting

    async def _abort(
        self, request: DetachedEnd, known: KnownTransactions, before: list[int]
    ) -> HalfEnded:
        """Nothing that was published is touched; what is named can be committed no more. Without
        attempts it is about all that are open here."""
        if before:
            return _answer(before, repeated=True)
        here = request.attempts
        if not here:
            await self._half_endings.arrived(request.name)
            known = self._halves.attempts(request.name)
            here = list(known)
        named = list(dict.fromkeys(here + request.elsewhere))
        left = [at for at in named if not isinstance(known.get(at), TransactionOutcome)]
        await self._roll_back(request.name, left)
        return _answer([], repeated=not left)

    async def _roll_back_others(self, name: str, attempts: list[int]) -> None:
        """After the commit: nothing more is staged now than what is on its way."""
        await self._half_endings.arrived(name)
        known = self._halves.attempts(name)
        others = [at for at, one in known.items() if isinstance(one, OpenTransaction)]
        await self._roll_back(name, [at for at in others if at not in attempts])

    async def _roll_back(self, name: str, attempts: list[int]) -> None:
        for first in range(0, len(attempts), ROLLED_BACK_AT_ONCE):
            keys = [detached_key(name, at) for at in attempts[first : first + ROLLED_BACK_AT_ONCE]]
            opened = [one for key in keys if (one := self._halves.open.get(key)) is not None]
            await self._half_endings.decide("rollback", opened, keys=keys)

    @asynccontextmanager
    async def _claim(self, name: str) -> AsyncIterator[None]:
        """Two drivers that commit different attempts of a name must not both find it open."""
        while name in self._claims:
            await asyncio.wait([self._claims[name]])
        done = self._claims[name] = self._new_future()
        try:
            yield
        finally:
            del self._claims[name]
            done.set_result(None)


def _check_unseen(rights: Rights | None, request: DetachedEnd, known: KnownTransactions) -> None:
    """Attempts that are not here can be decided about, and whose they will be nobody knows: by who
    has an attempt of the name open here, or may send to, or operate on, all topics."""
    unseen = [at for at in request.attempts + request.elsewhere if at not in known]
    if rights is None or not unseen or rights.may(Action.PUBLISH, "topic", ""):
        return
    opened = [one for one in known.values() if isinstance(one, OpenTransaction)]
    if not any(rights.is_app(one.app) for one in opened):
        rights.check_operate("")


def _answer(
    attempts: list[int], *, repeated: bool, otherwise: HalfState = "rolled_back"
) -> HalfEnded:
    state: HalfState = "committed" if attempts else otherwise
    return HalfEnded(state=state, placed=[], attempts=attempts, repeated=repeated)
