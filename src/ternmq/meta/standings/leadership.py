"""Changes which server leads a broker group: each change is a compare-and-set in the registry.

A change reads the standing, decides (`standings`), replaces it at the version it read, and does so
again if somebody was faster; it all runs in the registry's worker thread. Nothing is kept here that
another meta server would need. Epochs are drawn from the registry's counter *after* the standing
was read, so an epoch in a standing is always larger than all before it.

A registry may be replaced by an older copy while meta servers run. Before a change the standing is
held against what this server saw last: who leads, and who is in sync, is not decided by the copy.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from ternmq.core.errors import AlreadyExists, BadRequest, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.discovery.standing_table import StandingRequest
from ternmq.meta.registries.registry import Registry
from ternmq.meta.standings.claims import (
    claimed,
    empty_handed,
    is_foreign,
    is_older,
    undecided_text,
)
from ternmq.meta.standings.liveness import Liveness
from ternmq.meta.standings.standings import (
    check_lead,
    epoch_key,
    forgotten,
    joined,
    led,
    left,
    resynced,
)
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    BrokerGroupKind,
    Claim,
    InSyncChange,
    InSyncLeave,
    MemberForget,
    MemberJoin,
    MemberLead,
    Standing,
)

ATTEMPTS_MAX = 20
EPOCHS_SKIPPED = 1_000
"""A registry that knows less than a member may have given out more epochs than anybody told us."""

log = get_logger()

DecideStanding = Callable[[Standing | None], Standing | None]


class StandingChange(Protocol):
    """Which group a request is about."""

    @property
    def broker_group(self) -> str: ...

    @property
    def kind(self) -> BrokerGroupKind: ...


class Leadership:
    """The changes of standings. They block: for the registry's worker thread."""

    def __init__(self, registry: Registry, liveness: Liveness) -> None:
        self._registry = registry
        self.liveness = liveness
        self._seen: dict[tuple[str, BrokerGroupKind], Standing] = {}
        """The latest that this server saw of each group."""

    def saw(self, standing: Standing) -> None:
        """The group stands so, or stood so in a copy; from the loop."""
        key = (standing.broker_group, standing.kind)
        seen = self._seen.get(key)
        if not standing.claims and (
            seen is None or seen.line != standing.line or is_older(seen, _claim(standing))
        ):
            self._seen[key] = standing

    def change(self, wanted: StandingRequest) -> Standing:
        """Do what a member or a person asks for."""
        seen = self._seen.get((wanted.broker_group, wanted.kind))
        if seen is not None and self._registry.standing(seen.broker_group, seen.kind) is not None:
            self.check_seen(seen)
        match wanted:
            case MemberJoin():
                return self._join(wanted)
            case MemberLead():
                return self._lead(wanted)
            case MemberForget():
                return self._forget(wanted)
            case InSyncChange():
                return self._change_in_sync(wanted)
            case InSyncLeave():
                return self._leave_in_sync(wanted)
            case BrokerGroupDrain():
                return self._drain(wanted)

    def _join(self, wanted: MemberJoin) -> Standing:
        member, key = wanted.member, epoch_key(wanted.broker_group, wanted.kind)
        empty = Standing(
            broker_group=wanted.broker_group, kind=wanted.kind, line=self._registry.cluster
        )

        def decide(held: Standing | None) -> Standing | None:
            known = None if held is None else held.member(member.id)
            if known is not None and known.address != member.address:
                self._refuse_copy(member.id, known.address)
            if is_foreign(held, wanted.claim) and wanted.data_epoch > 0:
                raise BadRequest(
                    f"{member.name} has the data of another broker group {wanted.broker_group!r} "
                    "(of another cluster, or from before the registry was emptied): give it an "
                    "empty directory. If its data is the right one, stop the others and 'tern "
                    f"broker forget {wanted.broker_group} MEMBER --accept-loss' each of them first"
                )
            if wanted.data_epoch > 0:
                self._refuse_stranger(held, wanted)
            if held is not None and held.claims:
                claim = wanted.claim
                if claim is None and wanted.data_epoch == 0:
                    claim = empty_handed(held, member)
                return _other(held, claimed(held, empty, member, claim))
            if is_older(held, wanted.claim) and not is_foreign(held, wanted.claim):
                return claimed(held, empty, member, wanted.claim)
            history = wanted.data_epoch == 0 and self._registry.last_epoch(key) > 0
            return joined(held, empty, member, history=history)

        self._skip_epochs(wanted)
        standing = self._swap(wanted, decide)
        if standing.claims:
            log.error("broker group not decided", reason=undecided_text(standing))
        return standing

    def check_seen(self, seen: Standing) -> Standing:
        """A meta server saw the group stand so once; an older copy of the registry is not believed
        until its members have come."""
        claim = _claim(seen)
        empty = Standing(broker_group=seen.broker_group, kind=seen.kind)

        def decide(held: Standing | None) -> Standing | None:
            known = held is not None and bool(held.claims)
            if known or not is_older(held, claim) or is_foreign(held, claim):
                return None
            log.error(
                "the registry was restored from an old copy",
                group=seen.broker_group,
                registry_epoch=held.epoch if held else 0,
                epoch=seen.epoch,
            )
            self._raise_epochs(seen, seen.epoch)
            return claimed(held, empty, None, claim)

        return self._swap(seen, decide)

    def _skip_epochs(self, wanted: MemberJoin) -> None:
        """Before anything is decided: no epoch that a member may have heard of comes again."""
        held = self._registry.standing(wanted.broker_group, wanted.kind)
        key = epoch_key(wanted.broker_group, wanted.kind)
        given = self._registry.last_epoch(key)
        accepted = 0 if wanted.claim is None else wanted.claim.accepted_epoch
        if wanted.claim is None or (given >= accepted and not is_older(held, wanted.claim)):
            return
        log.error(
            "the registry knows less than a member: it was lost, or restored from an old copy",
            group=wanted.broker_group,
            member=wanted.member.name,
            registry_epoch=0 if held is None else held.epoch,
            epoch=wanted.claim.held.epoch,
        )
        self._raise_epochs(wanted, accepted)

    def _raise_epochs(self, group: StandingChange, accepted: int) -> None:
        key = epoch_key(group.broker_group, group.kind)
        used = max(self._registry.last_epoch(key), accepted)
        self._registry.reserve(
            InUse(broker_group=key, topic_ids=frozenset(), group_id=0, epoch=used + EPOCHS_SKIPPED),
            now_ms=0,
        )

    def _lead(self, wanted: MemberLead) -> Standing:
        key = epoch_key(wanted.broker_group, wanted.kind)

        def decide(held: Standing | None) -> Standing | None:
            standing = _there(held, wanted)
            check_lead(
                standing,
                wanted.member_id,
                alive=self._may_be_alive(standing.master),
                force=wanted.force,
                accept_loss=wanted.accept_loss,
            )
            epoch = self._registry.new_epoch(key)
            return led(standing, wanted.member_id, epoch=epoch)

        standing = self._swap(wanted, decide)
        log.info(
            "master",
            group=standing.broker_group,
            kind=standing.kind,
            epoch=standing.epoch,
            member=standing.master,
            in_sync=standing.in_sync,
        )
        return standing

    def _change_in_sync(self, wanted: InSyncChange) -> Standing:
        def decide(held: Standing | None) -> Standing | None:
            return resynced(
                _there(held, wanted),
                epoch=wanted.epoch,
                in_sync=wanted.in_sync,
                version=wanted.version,
                waits=wanted.waits,
            )

        return self._swap(wanted, decide)

    def _leave_in_sync(self, wanted: InSyncLeave) -> Standing:
        return self._swap(
            wanted,
            lambda held: left(
                _there(held, wanted),
                wanted.member_id,
                epoch_seen=wanted.epoch_seen,
                surely=wanted.surely,
            ),
        )

    def _forget(self, wanted: MemberForget) -> Standing:
        return self._swap(
            wanted,
            lambda held: forgotten(
                _there(held, wanted),
                wanted.member_id,
                alive=self._may_be_alive(wanted.member_id),
                accept_loss=wanted.accept_loss,
            ),
        )

    def _drain(self, wanted: BrokerGroupDrain) -> Standing:
        def decide(held: Standing | None) -> Standing | None:
            standing = _there(held, wanted)
            return _other(standing, msgspec.structs.replace(standing, draining=wanted.draining))

        return self._swap(wanted, decide)

    def _may_be_alive(self, member_id: str) -> bool:
        """As far as this meta server knows, or another one of the same registry."""
        if self.liveness.may_be_alive(member_id):
            return True
        held = self._registry.held()
        return member_id in held and self.liveness.may_be_alive_elsewhere(
            member_id, held[member_id]
        )

    def _refuse_stranger(self, held: Standing | None, wanted: MemberJoin) -> None:
        """A group that began in another registry is taken up by one that is empty, in the place of
        the one that was lost, and by no other: that is another cluster's."""
        here, began = self._registry.cluster, wanted.claim.held.line if wanted.claim else ""
        if began in ("", here) or (held is not None and held.line == began):
            return
        own = [
            each.broker_group
            for each in self._registry.standings()
            if each.line == here and each.epoch > 0 and each.members
        ]
        if own:
            raise BadRequest(
                f"{wanted.member.name} has the data of cluster {began}, and this is the registry "
                f"of cluster {here} ({self._registry.description}), in which {own[0]!r} began: "
                "name the meta servers of its own cluster in --url"
            )

    def _refuse_copy(self, member_id: str, address: str) -> None:
        if self.liveness.is_heard(member_id):
            raise AlreadyExists(
                f"member {member_id} is running at {address}, or was until now: try again when it "
                "is stopped. Of a copied data directory delete the file 'member'"
            )

    def _swap(self, wanted: StandingChange, decide: DecideStanding) -> Standing:
        for _ in range(ATTEMPTS_MAX):
            held = self._registry.standing(wanted.broker_group, wanted.kind)
            changed = decide(held)
            if changed is None:
                return _there(held, wanted)
            before = 0 if held is None else held.version
            changed = msgspec.structs.replace(changed, version=max(before, changed.version) + 1)
            if self._registry.put_standing(changed, before):
                return changed
        raise Unavailable(
            f"broker group {wanted.broker_group!r} changes all the time; try again",
        )


def _claim(seen: Standing) -> Claim:
    """What a meta server knows of a group that it saw."""
    return Claim(member="", held=seen, accepted_epoch=seen.epoch)


def _other(held: Standing, changed: Standing) -> Standing | None:
    return None if changed == held else changed


def _there(held: Standing | None, wanted: StandingChange) -> Standing:
    if held is None:
        raise BadRequest(f"broker group {wanted.broker_group!r} has no members; nobody joined it")
    return held
