"""Q1, R1: order-key slots move from one broker group to another in steps; pure."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.core.errors import BadRequest
from ternmq.core.slots import SLOTS
from ternmq.meta.placement import changed
from ternmq.wire.messages.order_keys import PlaceChange, Placement

EAST_WEST = changed(None, PlaceChange(action="assign"), ["east", "west"])


def shares(placement: Placement) -> Counter[str]:
    return Counter(placement.owner(slot) or "nobody" for slot in range(SLOTS))


def test_the_first_owners_are_the_groups_that_are_there() -> None:
    assert shares(EAST_WEST) == {"east": 512, "west": 512}
    again = changed(EAST_WEST, PlaceChange(action="assign"), ["north"])

    assert again is EAST_WEST


def test_while_a_slot_closes_nobody_owns_it_and_then_the_other_group_does() -> None:
    moving = changed(
        EAST_WEST, PlaceChange(action="move", broker_group="west", slots=[0]), ["east", "west"]
    )
    assert EAST_WEST.owner(0) == "east"
    assert moving.owner(0) is None
    assert moving.version > EAST_WEST.version

    wrong = changed(moving, PlaceChange(action="stopped", broker_group="west", slots=[0]), [])
    assert wrong is moving  # Only the owner can say that it has stopped.
    stopped = changed(moving, PlaceChange(action="stopped", broker_group="east", slots=[0, 2]), [])
    assert stopped.owner(0) == "west"
    assert stopped.owner(2) == "east"
    assert {slot: stopped.groups[at] for slot, at in stopped.behind.items()} == {0: "east"}

    settled = changed(stopped, PlaceChange(action="settled", broker_group="east", slots=[0]), [])
    assert not settled.behind
    assert settled.owner(0) == "west"


def test_a_slot_on_its_way_is_not_moved_on_but_can_be_called_back() -> None:
    masters = ["east", "north", "west"]
    moving = changed(EAST_WEST, PlaceChange(action="move", broker_group="west", slots=[0]), masters)
    with pytest.raises(BadRequest, match="has not stopped"):
        changed(moving, PlaceChange(action="move", broker_group="north", slots=[0]), masters)
    back = changed(moving, PlaceChange(action="move", broker_group="east", slots=[0]), masters)
    assert back.owner(0) == "east"
    late = changed(back, PlaceChange(action="stopped", broker_group="east", slots=[0]), masters)
    assert late is back

    behind = changed(moving, PlaceChange(action="stopped", broker_group="east", slots=[0]), masters)
    with pytest.raises(BadRequest, match="not settled"):
        changed(behind, PlaceChange(action="move", broker_group="east", slots=[0]), masters)


def test_force_takes_slots_from_a_group_that_is_gone() -> None:
    forced = changed(
        EAST_WEST,
        PlaceChange(action="move", broker_group="west", slots=[0], force=True),
        ["east", "west"],
    )

    assert forced.owner(0) == "west"
    assert 0 in forced.behind
    assert not changed(forced, PlaceChange(action="release", broker_group="east"), []).behind


def test_a_new_group_gets_its_share_and_one_that_leaves_loses_all() -> None:
    masters = ["east", "north", "west"]
    grown = all_stopped(changed(EAST_WEST, PlaceChange(action="balance"), masters))
    assert max(shares(grown).values()) - min(shares(grown).values()) <= 1
    assert len(grown.behind) == shares(grown)["north"]  # Nothing else moved.

    rested = all_settled(grown)
    left = all_stopped(changed(rested, PlaceChange(action="balance", leaving=["east"]), masters))
    assert shares(left) == {"north": 512, "west": 512}


def test_balance_goes_by_weight() -> None:
    weighed = changed(EAST_WEST, PlaceChange(action="weight", broker_group="east", weight=300), [])
    balanced = all_stopped(changed(weighed, PlaceChange(action="balance"), ["east", "west"]))

    assert shares(balanced) == {"east": 768, "west": 256}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["move", "balance", "stopped", "settled", "weight"]),
            st.sampled_from(["a", "b", "c"]),
            st.lists(st.integers(0, SLOTS - 1), max_size=5),
            st.integers(0, 200),
        ),
        max_size=20,
    )
)
def test_every_slot_has_one_owner_and_one_former_owner_at_most(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    placement = changed(None, PlaceChange(action="assign"), ["a", "b"])
    for action, group, slots, weight in steps:
        place = PlaceChange(action=action, broker_group=group, slots=slots, weight=weight)
        try:
            after = changed(placement, place, ["a", "b", "c"])
        except BadRequest:
            continue
        assert len(after.owners) == SLOTS
        assert not after.closing.keys() & after.behind.keys()
        for slot in range(SLOTS):
            if after.owners[slot] != placement.owners[slot]:  # Only through `stopped`.
                assert after.behind[slot] == placement.owners[slot]
                assert placement.closing[slot] == after.owners[slot]
        placement = after


def all_stopped(placement: Placement) -> Placement:
    for group in placement.groups:
        place = PlaceChange(action="stopped", broker_group=group, slots=list(range(SLOTS)))
        placement = changed(placement, place, [])
    return placement


def all_settled(placement: Placement) -> Placement:
    for group in placement.groups:
        place = PlaceChange(action="settled", broker_group=group, slots=list(range(SLOTS)))
        placement = changed(placement, place, [])
    return placement


def test_what_a_broker_knows_stands_where_the_registry_was_put_back_from_an_older_copy() -> None:
    later = changed(
        EAST_WEST, PlaceChange(action="move", broker_group="west", slots=[0]), ["east", "west"]
    )
    assert changed(EAST_WEST, PlaceChange(action="known", known=later), []) == later
    assert changed(later, PlaceChange(action="known", known=EAST_WEST), []) is later
    assert changed(later, PlaceChange(action="known", known=later), []) is later
    assert changed(None, PlaceChange(action="known", known=later), []).owners == later.owners


@pytest.mark.parametrize(
    "wrong",
    [
        {"owners": [0]},
        {"owners": [9] * SLOTS},
        {"closing": {5: 7}},
        {"behind": {SLOTS: 0}},
        {"groups": []},
    ],
)
def test_a_placement_that_is_not_whole_is_never_taken(wrong: dict[str, Any]) -> None:
    known = msgspec.structs.replace(EAST_WEST, version=99, **wrong)
    with pytest.raises(BadRequest, match="not whole"):
        changed(EAST_WEST, PlaceChange(action="known", known=known), [])
