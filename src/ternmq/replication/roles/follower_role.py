"""A member that follows: copies the logs of its master and waits.

It follows whoever the standing names. While its master cannot be reached or hangs, and this member
is in the in-sync set, it asks meta to lead in its place: meta agrees once the master has been
silent for long enough. So a replica becomes a master by asking, and the registry decides between
several.

Its logs are those of the master, byte for byte; what the master calls safe counts here.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from ternmq.core.errors import (
    AlreadyExists,
    Corrupt,
    DiskFailed,
    Diverged,
    MasterAlive,
    NotInSync,
    NotMaster,
    TernError,
)
from ternmq.core.lifecycle import background
from ternmq.core.log import LogThrottle, get_logger
from ternmq.core.retry import doubled
from ternmq.replication.following.leader_link import LeaderLink
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import FollowerService, ReplicatedStore, ServerKind
from ternmq.replication.roles.reseed import move, why_not
from ternmq.storage.log.leader_epochs import Starts
from ternmq.wire.messages.replication import MESSAGES, Follow, Followed, LogHeld
from ternmq.wire.messages.standings import Standing

SOON_S = 0.02
AGAIN_S = 0.3
PING_S = 0.5
SILENT_S = 1.0
"""A master that answers nothing for so long may hang: the registry is asked."""
DIVERGED_S = 5.0
UNDECIDED = "the registry was lost; 'tern broker promote' shows who is missing"

log = get_logger()


class FollowerRole:
    """One time of following, until this member leads or stops; a `FollowProgress`."""

    def __init__(self, context: MemberContext, store: ReplicatedStore) -> None:
        self._context = context
        self._store = store
        self._logs = store.logs
        self.trouble = "not following yet"
        self.role: FollowerService = store.follower_service(context, self)
        self._writer = ReplicaWriter(
            self._logs, from_memory=context.from_memory, on_safe=self.role.on_safe
        )
        self._follower = LeaderLink(self._writer, context.hello, prepare=self._prepare)
        self._seldom = LogThrottle()
        self._tried_epoch = self._failures = 0
        self.base = b""
        """What to begin with anew, once the store is closed."""
        self.diverged = False
        """It has what its master lacks, as it may be where masters do not wait."""

    def lag(self) -> int:
        if not self._follower.following:
            return -1
        return max(0, self._writer.master_ends[MESSAGES] - self._logs[MESSAGES].end)

    async def run(self) -> Standing | None:
        """Returns the standing by which this member leads; None when the server stops."""
        look = self._store.look
        files = partial(self._context.watch_files, look)
        loops = self.role.loops(self._writer)
        async with background(files=files, master=self._watch_master, **loops):
            while not self._over():
                if self.role.failed is not None and not await self._context.lost_files(look):
                    await self._stay_out(self.role.failed)
                    return None
                standing = self._context.standing
                self._context.changed.clear()
                own = standing.master == self._context.me
                won = await (self._own(standing) if own else self._follow(standing))
                if won is not None:
                    return won
        return None

    async def _watch_master(self) -> None:
        """A master that hangs keeps its connections. The registry says whether it is dead; nobody
        is hung up on before that, for it may only be busy."""
        while True:
            await asyncio.sleep(PING_S)
            if await self._follower.hears(SILENT_S):
                continue
            if self._context.unfit or await self._context.lost_files(self._store.look):
                continue
            won = await self._try_to_lead()
            if won is not None:
                log.warning("the master hangs; leading in its place", epoch=won.epoch)
                self._context.learn(won)

    def _over(self) -> bool:
        context = self._context
        return bool(context.stop.is_set() or self.base or self.diverged or context.unfit)

    async def _stay_out(self, failed: TernError) -> None:
        """Neither follow nor lead until a restart."""
        self.trouble = failed.message
        log.error("this member is out until it is started again", reason=failed.message)
        await self._context.leave_set()
        await self._context.stop.wait()

    async def _own(self, standing: Standing) -> Standing | None:
        """This member was made the master: by that epoch if it is new, else by another."""
        if standing.epoch > self._context.member.accepted_epoch:
            return standing
        try:
            return await self._context.lead()
        except TernError as error:
            self.trouble = error.message
            self._complain("does not lead yet", error)
            await self._rest(AGAIN_S)
        return None

    def _complain(self, event: str, error: TernError) -> None:
        if self._seldom.due(event, error.message, asyncio.get_running_loop().time()):
            log.warning(event, reason=error.message, epoch=self._context.standing.epoch)

    async def _follow(self, standing: Standing) -> Standing | None:
        """Follow until that ends, then try to lead; a standing if that worked."""
        try:
            master = standing.member(standing.master)
            if master is None:
                raise NotMaster(UNDECIDED if standing.claims else "the broker group has no master")
            await self._context.record.accept(standing)
            self.trouble = ""
            await self._until_changed(
                self._follower.run(master.address, lambda: self._ask(standing.epoch))
            )
            return None
        except TernError as error:
            self.trouble = error.message
            self._complain("not following", error)
            if self.base:
                return None
            if await self._context.lost_files(self._store.look):
                return None  # Before it asks to lead.
            if self._context.from_memory and isinstance(error, DiskFailed):
                await self._context.leave_set()  # What it answered for may not be there.
            if isinstance(error, Diverged) and not self._context.standing.waits:
                self.diverged = True
                return None
            outside = self._context.me not in self._context.standing.in_sync
            if isinstance(error, Diverged) or (outside and isinstance(error, Corrupt)):
                await self._rest(DIVERGED_S)
                return None
        won = await self._try_to_lead()
        if won is None:
            await self._rest(self._pause(standing.epoch))
        return won

    def _pause(self, epoch: int) -> float:
        """Short at first: a master that has just been named is about to serve, and the messages
        of the whole group wait until somebody follows it."""
        if epoch != self._tried_epoch:
            self._tried_epoch, self._failures = epoch, 0
        self._failures += 1
        return doubled(self._failures - 1, first=SOON_S, most=AGAIN_S)

    async def _try_to_lead(self) -> Standing | None:
        context = self._context
        if context.me not in context.standing.in_sync or not context.config.failover:
            return None
        if context.standing.master and self._is_other(context.standing):
            return None  # Another leads already; with no master it has left again.
        try:
            return await context.lead()
        except MasterAlive:
            pass
        except NotInSync as error:
            self._complain("may not lead", error)
        except TernError as error:
            self._complain("cannot ask to lead", error)
        return None

    async def _until_changed(self, following: Any) -> None:
        """Follow until it ends by itself, or the standing is another, or the server stops."""
        context = self._context
        tasks = [
            asyncio.ensure_future(following),
            asyncio.ensure_future(context.changed.wait()),
            asyncio.ensure_future(context.stop.wait()),
        ]
        try:
            while True:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done() or self._over() or self._is_other(context.standing):
                    break
                context.changed.clear()
                tasks[1] = asyncio.ensure_future(context.changed.wait())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not tasks[0].cancelled():
            tasks[0].result()

    def _is_other(self, standing: Standing) -> bool:
        return standing.epoch > self._context.member.accepted_epoch

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._context.changed.wait()
        except TimeoutError:
            pass

    def _ask(self, epoch: int) -> Follow:
        tables = self._store.tables()
        return Follow(
            broker_group=self._context.broker_group,
            member=self._context.me,
            epoch=epoch,
            logs=[
                LogHeld(
                    log=number,
                    start=log.start_offset,
                    end=log.end,
                    safe=log.acknowledged if self._context.standing.waits else log.safe_offset,
                    epochs=tables[number],
                )
                for number, log in self._logs.items()
            ],
        )

    async def _prepare(self, followed: Followed) -> None:
        """Have the master's history and nothing else."""
        if followed.base:
            self.base = followed.base
            raise NotMaster("the master's logs begin later than these end: beginning anew")
        cuts = {plan.log: plan.cut_to for plan in followed.logs}
        tables: dict[int, Starts] = {plan.log: plan.epochs for plan in followed.logs}
        waits = self._context.standing.waits
        await self._writer.alone(lambda: self._store.adopt(cuts, tables, waits=waits))

    async def close(self) -> None:
        await self.role.close()
        await self._writer.close()


async def follow(context: MemberContext, server_kind: ServerKind) -> Standing | None:
    """Be a replica; returns the standing by which this member leads, None at the end."""
    while True:
        useless, base = False, b""
        try:
            leads, base, useless = await _follow(context, server_kind)
            if not base and not useless:
                return leads
            if useless:
                await move(context, server_kind)
            else:
                await _reseed(context, server_kind, base)
        except TernError as error:
            if not base and not useless:
                raise
            log.error(
                "this replica cannot go on with its data, and not begin anew: move its data "
                "directory aside and start again",
                reason=error.message,
            )
            await asyncio.sleep(DIVERGED_S)


async def _reseed(context: MemberContext, server_kind: ServerKind, base: bytes) -> None:
    """With what the master gave; what is here ends before the master's logs begin."""
    context.held.clear()
    try:
        await server_kind.reseed(context, base)
    except AlreadyExists:
        await move(context, server_kind)
        await server_kind.reseed(context, base)


async def _follow(
    context: MemberContext, server_kind: ServerKind
) -> tuple[Standing | None, bytes, bool]:
    """(standing to lead by, base to begin with, whether the data is of no use)."""
    loop = asyncio.get_running_loop()
    epoch = context.member.accepted_epoch
    store = await loop.run_in_executor(
        None, lambda: server_kind.open(epoch, suffix=True, on_corrupt=context.on_corrupt)
    )
    try:
        if context.from_memory:
            await loop.run_in_executor(None, server_kind.note_acks_from_memory, True)
        replica = FollowerRole(context, store)
        try:
            context.enter(replica.role)
            context.begun(replica.role.scrape)
            damaged = await context.leave_if_damaged(store.report, store.logs)
            leads = None if damaged else await replica.run()
            if damaged or (context.unfit and await context.leave_if_damaged(store.report)):
                return None, b"", await _useless(context, server_kind, replica, "damaged")
            if replica.diverged:
                return None, b"", await _useless(context, server_kind, replica, "diverged")
            return leads, replica.base, False
        finally:
            context.ended()
            context.leave()
            await replica.close()
    finally:
        context.close_role(store.logs)
        again = not context.stop.is_set()
        await loop.run_in_executor(None, partial(store.close, again=again))


async def _useless(
    context: MemberContext, server_kind: ServerKind, replica: FollowerRole, what: str
) -> bool:
    """Until it can be moved aside; or (False) the server stops, or is wanted to lead."""
    while not context.stop.is_set() and (context.standing.master != context.me or context.unfit):
        if context.unfit:
            await context.leave_set()
        reason = await why_not(context, server_kind)
        if not reason:
            return True
        replica.trouble = f"{what}, and not moved aside: {reason}"
        with suppress(TimeoutError):
            async with asyncio.timeout(DIVERGED_S):
                await context.stop.wait()
    return False
