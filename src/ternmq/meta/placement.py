"""What may become of a placement; pure. Each change takes one as it is and returns what follows.

A slot goes from one broker group to another in three steps, so that of every order key nothing
overtakes:

1. *closing*: it is named for another group. The owner sees that and stops storing into it, and
   nobody else stores into it yet: all that was stored before is on the owner, all that comes after
   will be on the other.
2. *behind*: the owner said that it has stopped. The other one stores, and hands a row out to an
   ordered group only when that group has settled all rows of the slot on the former owner.
3. at rest: the new owner asked the former one, and every ordered group has.

One move at a time: a slot that is still closing or behind is not moved on, except back to where it
comes from while it is closing. `force` leaves out the first step, for an owner that is gone for
good; `release` the third. `known` is what a broker has heard of, later than this.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.core.slots import SLOTS
from ternmq.wire.messages.order_keys import PlaceChange, Placement

WEIGHT = 100
WEIGHT_MAX = 10_000
BROKER_GROUPS_MAX = 1_000


def changed(before: Placement | None, wanted: PlaceChange, masters: Sequence[str]) -> Placement:
    """What is asked for, done; `masters` are the groups that are there. Raises `BadRequest`."""
    if wanted.action == "known":
        return _later(before or Placement(), wanted.known)
    draft = _Draft(before or Placement())
    if any(not 0 <= slot < SLOTS for slot in wanted.slots):
        raise BadRequest(f"a slot is a number from 0 to {SLOTS - 1}")
    match wanted.action:
        case "assign":
            draft.assign(sorted({*masters, wanted.broker_group} - {""}))
        case "move":
            check_name("broker group", wanted.broker_group)
            if wanted.broker_group not in masters:
                raise BadRequest(
                    f"broker group {wanted.broker_group!r} is not there; start it first"
                )
            draft.check_free(wanted.slots, wanted.broker_group, force=wanted.force)
            for slot in wanted.slots:
                draft.move(slot, wanted.broker_group, force=wanted.force)
        case "balance":
            draft.balance([name for name in masters if name not in wanted.leaving])
        case "stopped":
            for slot in wanted.slots:
                draft.stopped(slot, wanted.broker_group)
        case "settled":
            for slot in wanted.slots:
                draft.settled(slot, wanted.broker_group)
        case "release":
            for slot in list(draft.behind):
                draft.settled(slot, wanted.broker_group)
        case "weight":
            check_name("broker group", wanted.broker_group)
            if not 0 <= wanted.weight <= WEIGHT_MAX:
                raise BadRequest(f"a weight of {wanted.weight}; it can be 0 to {WEIGHT_MAX}")
            draft.weights[wanted.broker_group] = wanted.weight
    return draft.finished()


def _later(before: Placement, known: Placement | None) -> Placement:
    """What a broker knows, if that is later than this: then an older copy of the registry was put
    back. With its own version: who knows a later one yet says so in turn."""
    if known is None or known.version <= before.version:
        return before
    places = range(len(known.groups))
    numbers = {*known.owners, *known.closing.values(), *known.behind.values()}
    slots = {*known.closing, *known.behind}
    if (
        len(known.owners) != SLOTS
        or len(known.groups) > BROKER_GROUPS_MAX
        or not numbers <= set(places)
        or not slots <= set(range(SLOTS))
    ):
        raise BadRequest("this placement is not whole; is the data of this server damaged?")
    return known


class _Draft:
    """A placement that is being changed."""

    def __init__(self, before: Placement) -> None:
        self._before = before
        self._groups = list(before.groups)
        self._owners = list(before.owners)
        self._closing = dict(before.closing)
        self.behind = dict(before.behind)
        self.weights = dict(before.weights)

    def finished(self) -> Placement:
        """With the next version, if anything is new."""
        made = Placement(
            version=self._before.version,
            groups=self._groups,
            owners=self._owners,
            closing=self._closing,
            behind=self.behind,
            weights=self.weights,
        )
        if made == self._before:
            return self._before
        return msgspec.structs.replace(made, version=made.version + 1)

    def _number(self, name: str) -> int:
        if name not in self._groups:
            if len(self._groups) >= BROKER_GROUPS_MAX:
                raise BadRequest(f"more than {BROKER_GROUPS_MAX} broker groups have or had slots")
            self._groups.append(name)
        return self._groups.index(name)

    def assign(self, names: Sequence[str]) -> None:
        """The first owners; later ones come by moving."""
        able = [name for name in names if self.weights.get(name, WEIGHT) > 0] or names
        if not self._owners and able:
            self._owners = [self._number(able[slot % len(able)]) for slot in range(SLOTS)]

    def check_free(self, slots: Sequence[int], to: str, *, force: bool) -> None:
        if not self._owners:
            raise BadRequest("no slot has an owner yet: send a message with an order key first")
        number = self._number(to)
        for slot in slots:
            if slot in self._closing and self._owners[slot] != number and not force:
                name = self._groups[self._owners[slot]]
                raise BadRequest(
                    f"slot {slot} is being moved and {name!r} has not stopped storing into it yet: "
                    f"wait, or move it back to {name!r}; --force, if {name!r} is gone for good"
                )
            if slot in self.behind and self._owners[slot] != number:
                name = self._groups[self.behind[slot]]
                raise BadRequest(
                    f"slot {slot} has rows on {name!r} that are not settled yet: wait for its "
                    f"consumers, or give their order up with 'tern broker slots release {name}'"
                )

    def move(self, slot: int, to: str, *, force: bool = False) -> None:
        owner, number = self._owners[slot], self._number(to)
        self._closing.pop(slot, None)
        if owner == number:
            return
        if force:
            self._owners[slot], self.behind[slot] = number, owner
        else:
            self._closing[slot] = number

    def stopped(self, slot: int, broker_group: str) -> None:
        """The owner does not store into it any more."""
        if (
            self._owners
            and self._groups[self._owners[slot]] == broker_group
            and slot in self._closing
        ):
            self.behind[slot] = self._owners[slot]
            self._owners[slot] = self._closing.pop(slot)

    def settled(self, slot: int, broker_group: str) -> None:
        """Every ordered group has settled what the former owner has of it, or shall not wait."""
        if slot in self.behind and self._groups[self.behind[slot]] == broker_group:
            del self.behind[slot]

    def balance(self, names: Sequence[str]) -> None:
        """Every group gets slots by its weight; as few as possible move."""
        able = [name for name in sorted(names) if self.weights.get(name, WEIGHT) > 0]
        if not able:
            raise BadRequest("no broker group is there that may have slots")
        if not self._owners:
            self.assign(able)
            return
        shares = _shares({name: self.weights.get(name, WEIGHT) for name in able})
        heading = {
            slot: self._groups[self._closing.get(slot, self._owners[slot])] for slot in range(SLOTS)
        }
        has = Counter(heading.values())
        wanting = [name for name in able for _ in range(shares[name] - has[name])]
        for slot, name in heading.items():
            if not wanting:
                return
            if has[name] > shares.get(name, 0) and slot not in self._closing | self.behind:
                has[name] -= 1
                self.move(slot, wanting.pop())


def _shares(weights: dict[str, int]) -> dict[str, int]:
    """So many slots for each; together all of them."""
    total, left = sum(weights.values()), SLOTS
    shares: dict[str, int] = {}
    for name, weight in weights.items():
        shares[name] = min(left, round(left * weight / total)) if total else left
        left, total = left - shares[name], total - weight
    return shares
