"""What may become of a standing; pure. Each function takes one as it is and returns what replaces
it (its version is raised by who stores it), or raises what to tell the one who asked.

Rules
-----
1. Only a member of the in-sync set leads, because only those have all that was acknowledged.
2. The set never becomes empty by itself; people may accept a loss.
3. Changing the set is for the master at its epoch, except that a member may take itself out.
"""

import msgspec

from ternmq.core.errors import AlreadyExists, BadRequest, MasterAlive, NotInSync
from ternmq.meta.standings.claims import undecided_text, version_above, without
from ternmq.wire.messages.standings import BrokerGroupKind, Member, Standing, conflict


def joined(
    held: Standing | None, empty: Standing, member: Member, *, history: bool
) -> Standing | None:
    """With the member in it; None: it is there already. `history`: the group had a life that
    this member has nothing of, so it cannot be the one that has everything."""
    standing = empty if held is None else held
    known = standing.member(member.id)
    if known == member:
        return None
    members = [each for each in standing.members if each.id != member.id]
    # The first that has what there is; others may have joined before it, with nothing.
    first = not standing.in_sync and standing.epoch == 0 and not history
    return msgspec.structs.replace(
        standing,
        members=sorted([*members, member], key=lambda each: (each.name, each.id)),
        in_sync=[member.id] if first else standing.in_sync,
    )


def check_lead(
    standing: Standing, member_id: str, *, alive: bool, force: bool, accept_loss: bool
) -> None:
    """Raise why this member may not lead now; `alive`: the master may be."""
    member = standing.member(member_id)
    group = standing.broker_group
    if member is None:
        raise NotInSync(f"{member_id!r} is not a member of broker group {group!r}; it joins first")
    if standing.claims and not accept_loss:
        raise NotInSync(undecided_text(standing))
    if member_id not in standing.in_sync and not accept_loss:
        raise NotInSync(
            f"{member.name} of broker group {group!r} is not in sync and may lack acknowledged "
            f"messages; {_who_may(standing)}tern broker promote {group} {member.name} "
            "--accept-loss makes it master as it is"
        )
    master = standing.member(standing.master)
    if master is not None and master.id != member_id and alive and not force:
        raise MasterAlive(
            f"broker group {group!r} has a master at {master.address} that may be alive: if it "
            f"answers, use tern broker handover {group}; if it does not, wait until meta calls it "
            f"dead, or say --force (what is acknowledged is safe either way)"
        )


def led(standing: Standing, member_id: str, *, epoch: int) -> Standing:
    """By this member from now on. Another one that led before stays in the set until the new master
    has seen that its own data is whole and takes it out: so there is always one that may lead.
    With a member from outside of the set nobody stays, for the others have what this one lacks;
    nor where the master did not wait for the set: nobody knows who has what."""
    others = [each for each in standing.in_sync if each != member_id]
    unsure = not standing.waits and standing.master != member_id
    if member_id not in standing.in_sync or unsure:
        others = []
    line = [each.held.line for each in standing.claims if each.member == member_id]
    return msgspec.structs.replace(
        standing,
        version=version_above(standing),
        epoch=epoch,
        master=member_id,
        in_sync=sorted([*others, member_id]),
        line=line[0] if line else standing.line,
        claims=[],
    )


def resynced(
    standing: Standing, *, epoch: int, in_sync: list[str], version: int, waits: bool = True
) -> Standing:
    """With another in-sync set, asked by the master at that epoch that knew that version."""
    if (standing.epoch, standing.version) != (epoch, version) or standing.claims:
        raise conflict(
            f"broker group {standing.broker_group!r} is at epoch {standing.epoch}, version "
            f"{standing.version}, not at epoch {epoch}, version {version}",
            standing,
        )
    unknown = [each for each in in_sync if standing.member(each) is None]
    if unknown or standing.master not in in_sync:
        raise BadRequest(f"an in-sync set has the master in it and only members, not {in_sync}")
    return msgspec.structs.replace(standing, in_sync=sorted(set(in_sync)), waits=waits)


def left(
    standing: Standing, member_id: str, *, epoch_seen: int, surely: bool = False
) -> Standing | None:
    """Without a member that knows it cannot be in the set; None: it is not in it. `surely`: at a
    new version in any case, so that no change that is under way adds it."""
    if member_id not in standing.in_sync and not surely:
        return None
    if standing.epoch != epoch_seen or standing.claims:
        raise conflict(
            f"broker group {standing.broker_group!r} is at epoch {standing.epoch}, not at "
            f"{epoch_seen}; look again",
            standing,
        )
    others = [each for each in standing.in_sync if each != member_id]
    if not others:
        raise conflict(
            f"{member_id} is the last in-sync member of broker group {standing.broker_group!r}",
            standing,
        )
    master = "" if standing.master == member_id else standing.master
    return msgspec.structs.replace(standing, in_sync=others, master=master)


def forgotten(standing: Standing, member_id: str, *, alive: bool, accept_loss: bool) -> Standing:
    """Without a member that is gone for good."""
    member = standing.member(member_id)
    group = standing.broker_group
    if member is None:
        names = ", ".join(each.name for each in standing.members) or "none"
        raise BadRequest(f"broker group {group!r} has no member {member_id!r}; it has {names}")
    if alive:
        raise AlreadyExists(f"{member.name} is running, or was until now; stop it, then forget it")
    if standing.claims:
        if not accept_loss:
            raise NotInSync(undecided_text(standing))
        return without(standing, member_id)
    others = [each for each in standing.in_sync if each != member_id]
    if standing.master == member_id and others:
        raise NotInSync(
            f"{member.name} is the master of broker group {group!r}; first: tern broker promote "
            f"{group} {_name(standing, others[0])}"
        )
    if not others and member_id in standing.in_sync and not accept_loss:
        raise NotInSync(
            f"{member.name} is the last in-sync member of broker group {group!r}: the group's "
            "messages are on its disk. If that is gone for good, say --accept-loss"
        )
    left_over = [each for each in standing.members if each.id != member_id]
    return msgspec.structs.replace(
        standing,
        master="" if standing.master == member_id else standing.master,
        in_sync=others,
        members=left_over,
        # A group of this name that is made one day is not the one that was emptied.
        draining=standing.draining and bool(left_over),
    )


def epoch_key(broker_group: str, kind: BrokerGroupKind) -> str:
    """Under which name a group's epochs are counted: brokers did so before there were standings."""
    return broker_group if kind == "realtime" else f"%{kind}.{broker_group}"


def _who_may(standing: Standing) -> str:
    names = [_name(standing, each) for each in standing.in_sync]
    return (
        f"start {' or '.join(names)}, which is in sync. If that is gone for good: " if names else ""
    )


def _name(standing: Standing, member_id: str) -> str:
    member = standing.member(member_id)
    return member_id if member is None else member.name
