"""Which role a server has: it leads if the standing says so, else it follows.

One role after the other, each from opening the store to closing it, as if the process had been
started anew; the listener stays. A start of the process never resumes an epoch: a member that was
the master asks for a new one.
"""

from ternmq.core.errors import MasterAlive, NotInSync, NotMaster, TernError
from ternmq.core.log import get_logger
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.server_kind import ServerKind
from ternmq.replication.roles.follower_role import follow
from ternmq.replication.roles.leader_role import lead
from ternmq.wire.messages.standings import Standing

log = get_logger()


async def run_roles(site: MemberContext, trade: ServerKind) -> None:
    """Until the server stops."""
    leads = await _begin(site)
    while not site.stop.is_set():
        if leads is None:
            leads = await follow(site, trade)
            site.promoted = True
            continue
        try:
            site.learn(leads)
            await site.record.accept(leads)
            await lead(site, trade, leads)
        except NotMaster as error:
            log.warning("does not lead", reason=error.message)
        site.promoted = False
        leads = await _again(site)


async def _begin(site: MemberContext) -> Standing | None:
    """At the start of the process: lead at a new epoch if this member led last, or nobody does."""
    if site.standing.master not in ("", site.me):
        return None
    return await _ask(site)


async def _again(site: MemberContext) -> Standing | None:
    """A leadership is over. Who was not replaced leads again, at a new epoch."""
    if site.stop.is_set():
        return None
    try:
        now = await site.directory.read_standing(site.group, site.kind)
        if now is not None:
            site.learn(now)
    except TernError as error:
        log.warning("standing not known", reason=error.message)
        return None
    if site.standing.master != site.me:
        return None
    try:
        return await _ask(site)
    except TernError as error:
        log.warning("does not lead yet", reason=error.message)  # `follow` asks again.
        return None


async def _ask(site: MemberContext) -> Standing | None:
    if site.unfit:
        return None  # Following, it makes room for those who have everything.
    try:
        return await site.lead()
    except (NotInSync, MasterAlive) as error:
        log.warning("does not lead", reason=error.message)
    return None
