"""Which role a server has: it leads if the standing says so, else it follows.

One role after the other, each from opening the store to closing it, as if the process had been
started anew, but for what only a crash in between would need; the listener stays. A start of the
process never resumes an epoch: a member that was the master asks for a new one.
"""

import asyncio

from ternmq.core.errors import MasterAlive, NotInSync, NotMaster, TernError
from ternmq.core.log import get_logger
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import ServerKind
from ternmq.replication.roles.follower_role import follow
from ternmq.replication.roles.leader_role import lead
from ternmq.wire.messages.standings import Standing

log = get_logger()


async def run_roles(context: MemberContext, server_kind: ServerKind) -> None:
    """Until the server stops."""
    try:
        await _run_roles(context, server_kind)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, server_kind.end)


async def _run_roles(context: MemberContext, server_kind: ServerKind) -> None:
    leads = await _begin(context)
    while not context.stop.is_set():
        if leads is None:
            leads = await follow(context, server_kind)
            context.promoted = True
            continue
        try:
            context.learn(leads)
            await context.record.accept(leads)
            await lead(context, server_kind, leads)
        except NotMaster as error:
            log.warning("does not lead", reason=error.message)
        context.promoted = False
        leads = await _again(context)


async def _begin(context: MemberContext) -> Standing | None:
    """At the start of the process: lead at a new epoch if this member led last, or nobody does."""
    if context.standing.master not in ("", context.me):
        return None
    return await _ask(context)


async def _again(context: MemberContext) -> Standing | None:
    """A leadership is over. Who was not replaced leads again, at a new epoch."""
    if context.stop.is_set():
        return None
    try:
        now = await context.directory.read_standing(context.broker_group, context.kind)
        if now is not None:
            context.learn(now)
    except TernError as error:
        log.warning("standing not known", reason=error.message)
        return None
    if context.standing.master != context.me:
        return None
    try:
        return await _ask(context)
    except TernError as error:
        log.warning("does not lead yet", reason=error.message)  # `follow` asks again.
        return None


async def _ask(context: MemberContext) -> Standing | None:
    if context.unfit:
        return None  # Following, it makes room for those who have everything.
    try:
        return await context.lead()
    except (NotInSync, MasterAlive) as error:
        log.warning("does not lead", reason=error.message)
    return None
