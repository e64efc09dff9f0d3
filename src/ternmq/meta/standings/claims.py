"""A registry that knows less than the members of a group: emptied, or restored from an old copy.
Pure.

Every member keeps on its own disk the last standing that it acted on: a master before it acts on
it, so before the first answer without somebody who left the set, and before it adds anybody. What
was acknowledged after a standing R was then acknowledged by somebody whose disk has a later one.
So if every member that R names has said what its disk has, and R is the latest of it, then R is how
the group stood, and its in-sync members have everything: it is taken up again. With one of them
missing this is no proof, and a person decides; likewise when two groups of one name are mixed up.

A member that never had company is all that its own record names, so it goes on by itself. One that
joined and was killed before it wrote anything down has followed nobody: it has nothing to say.
"""

from collections.abc import Iterable

import msgspec

from ternmq.wire.messages.standings import Claim, Member, Standing


def is_older(held: Standing | None, claim: Claim | None) -> bool:
    """The registry knows less of the group than this member."""
    return claim is not None and (held is None or _order(held) < _order(claim.held))


def is_foreign(held: Standing | None, claim: Claim | None) -> bool:
    """The member is of another group of this name: of another cluster, or of an earlier life."""
    if held is None or claim is None or not held.in_sync:
        return False
    return held.line != claim.held.line and bool(held.line) and bool(claim.held.line)


def empty_handed(undecided: Standing, member: Member) -> Claim | None:
    """For a member without a record and without data, where the latest of the others names it: it
    wrote down no standing, so it acted on none. None: it proves nothing, for it was in the set."""
    latest = _latest(undecided.claims)
    if latest.member(member.id) is None or member.id in latest.in_sync:
        return None
    nothing = Standing(broker_group=latest.broker_group, kind=latest.kind, line=latest.line)
    return Claim(member=member.id, held=nothing)


def claimed(
    held: Standing | None, empty: Standing, member: Member | None, claim: Claim | None
) -> Standing:
    """With what this member knows (None: a meta server that saw the group): as the group stood, if
    that is proven, else not decided."""
    standing = empty if held is None else held
    claims = list(standing.claims)
    if not claims and standing.epoch > 0 and standing.in_sync:
        claims.append(Claim(member="", held=standing))
    if claim is not None:
        claims = [each for each in claims if each.member != claim.member] + [claim]
    known = {each.id: each for claim in claims for each in claim.held.members}
    known |= {each.id: each for each in standing.members}
    if member is not None:
        known[member.id] = member
    latest = _latest(claims)
    undecided = msgspec.structs.replace(
        latest,
        version=standing.version,
        master="",
        in_sync=[],
        members=_sorted(known.values()),
        claims=sorted(claims, key=lambda each: each.member),
    )
    return settled(undecided)


def settled(undecided: Standing) -> Standing:
    """As the group stood before the registry was lost, if its members prove it."""
    if missing(undecided) or len({each.held.line for each in undecided.claims}) > 1:
        return undecided
    latest, came = _latest(undecided.claims), {each.member for each in undecided.claims}
    wanted = came | {each.id for each in latest.members}
    lacking = {each.member for each in undecided.claims if each.lacks}
    whole = [each for each in latest.in_sync if each not in lacking] or latest.in_sync
    return msgspec.structs.replace(
        latest,
        version=version_above(undecided),
        master=latest.master if latest.master in whole else "",
        in_sync=whole,
        members=[each for each in undecided.members if each.id in wanted],
    )


def missing(undecided: Standing) -> list[Member]:
    """Whose word is needed for a proof."""
    came = {each.member for each in undecided.claims}
    return [each for each in _latest(undecided.claims).members if each.id not in came]


def without(undecided: Standing, member_id: str) -> Standing:
    """A person says that this member is gone and nothing of it matters."""
    claims = [
        msgspec.structs.replace(
            claim,
            held=msgspec.structs.replace(
                claim.held,
                master="" if claim.held.master == member_id else claim.held.master,
                in_sync=[each for each in claim.held.in_sync if each != member_id],
                members=[each for each in claim.held.members if each.id != member_id],
            ),
        )
        for claim in undecided.claims
        if claim.member != member_id
    ]
    members = [each for each in undecided.members if each.id != member_id]
    left = msgspec.structs.replace(undecided, members=members, claims=claims)
    if not claims:
        return msgspec.structs.replace(left, version=version_above(undecided))
    return settled(left)


def last_known(standing: Standing) -> Standing:
    """The standing itself, or the best claim of a member where the registry knows less."""
    return _latest(standing.claims) if standing.claims else standing


def version_above(standing: Standing) -> int:
    """No member has heard of a later one."""
    return max(standing.version, *(each.held.version for each in standing.claims), 0)


def undecided_text(standing: Standing) -> str:
    """What to do, and by what to choose."""
    group, away = standing.broker_group, missing(standing)
    lines = {each.held.line for each in standing.claims}
    if len(lines) > 1:
        proof = "its members come from two different groups of this name"
    else:
        proof = "start " + " and ".join(each.name for each in away) + ", then it heals by itself"
    words = "; ".join(_word(standing, each) for each in standing.claims if each.member)
    return (
        f"the registry was lost or is an old copy: it does not know who has everything of broker "
        f"group {group!r}; {proof}. Or choose the member that goes furthest, what only others have "
        f"is lost then: tern broker promote {group} NAME --accept-loss. Known: {words or 'nothing'}"
    )


def _word(standing: Standing, claim: Claim) -> str:
    member = standing.member(claim.member)
    name = claim.member if member is None else member.name
    was = "in sync" if claim.member in claim.held.in_sync else "not in sync"
    led = ", led" if claim.held.master == claim.member else ""
    ends = " and ".join(f"{end}" for end in claim.ends) or "unknown"
    return (
        f"{name} ({was}{led} at epoch {claim.held.epoch}, version {claim.held.version}; its data: "
        f"epoch {claim.data_epoch}, logs up to {ends})"
    )


def _latest(claims: list[Claim]) -> Standing:
    return max((each.held for each in claims), key=_order)


def _order(standing: Standing) -> tuple[int, int]:
    return (standing.epoch, standing.version)


def _sorted(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda each: (each.name, each.id))
