"""A replica whose data is of no use begins anew: moves it aside, then copies everything.

Its logs end before its master's begin, or what was acknowledged is damaged here. Only a member that
is not in the in-sync set does so, while a master that is in it answers; so what is moved aside is
never the only copy, and nothing is deleted. Before it does, the registry is told, at a new version:
no change of the set that is still under way can add a member that has nothing by then.
"""

import asyncio

from ternmq.core.errors import NotMaster, TernError
from ternmq.core.log import get_logger
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import ServerKind
from ternmq.rpc.connection import Connection
from ternmq.storage.files.set_aside import asides, move_aside
from ternmq.wire.messages.standings import Standing

OPEN_S = 3.0

log = get_logger()


async def why_not(context: MemberContext, server_kind: ServerKind) -> str:
    """Why the data of this member cannot be moved aside now; empty: it can."""
    try:
        await _allowed(context, server_kind)
    except TernError as error:
        return error.message
    return ""


async def move(context: MemberContext, server_kind: ServerKind) -> None:
    """Move the data aside; the store is closed. Raises why that is not possible."""
    standing = await _allowed(context, server_kind)
    left = await context.directory.leave_in_sync(
        context.broker_group, context.me, standing.epoch, kind=context.kind, surely=True
    )
    context.learn(left)
    await context.record.note(left)
    loop, now_ms = asyncio.get_running_loop(), context.clock.now_ms()
    place = await loop.run_in_executor(None, move_aside, context.disk, server_kind.home, now_ms)
    await context.record.note_damaged(False)
    context.damaged = False
    context.held.clear()
    log.warning("data moved aside; everything is copied anew from the master", aside=str(place))


async def _allowed(context: MemberContext, server_kind: ServerKind) -> Standing:
    """Raises why not; returns how the group stands."""
    kept = await asyncio.get_running_loop().run_in_executor(
        None, asides, context.disk, server_kind.home
    )
    if len(kept) >= context.config.aside_max:
        raise NotMaster(
            f"{len(kept)} are aside already and aside_max is {context.config.aside_max}: "
            + (f"look whether {', '.join(kept)} can be deleted" if kept else "move it by hand")
        )
    standing = await context.directory.read_standing(context.broker_group, context.kind)
    if standing is None or standing.claims:
        raise NotMaster("the registry does not know who has everything")
    master = standing.member(standing.master)
    if context.me in standing.in_sync:
        raise NotMaster("this member is in the in-sync set")
    if master is None or master.id == context.me or master.id not in standing.in_sync:
        raise NotMaster("nobody leads who has everything")
    connection = await Connection.open(master.address, context.hello, timeout=OPEN_S)
    try:
        if connection.welcome.epoch != standing.epoch:
            raise NotMaster(f"{master.name} does not lead yet")
    finally:
        connection.abort()
    return standing
