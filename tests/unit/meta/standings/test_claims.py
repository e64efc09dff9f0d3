"""A registry that knows less than the members of a group: who may lead then; pure."""

import itertools
import random

import msgspec
import pytest

from ternmq.core.errors import NotInSync
from ternmq.meta.standings.claims import claimed, empty_handed, is_older, last_known
from ternmq.meta.standings.standings import check_lead, forgotten, led, resynced
from ternmq.wire.messages.standings import Claim, Member, Standing

ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")
NEW = Member(id="9" * 16, name="new", address="h9:1")
ALONE = Standing(
    broker_group="main",
    version=3,
    epoch=2,
    master=ONE.id,
    in_sync=[ONE.id],
    members=[ONE],
    line="first",
)
BOTH = msgspec.structs.replace(ALONE, version=5, in_sync=[ONE.id, TWO.id], members=[ONE, TWO])
WITHOUT_TWO = msgspec.structs.replace(BOTH, version=6, in_sync=[ONE.id])
EMPTY = Standing(broker_group="main", line="second")


def says(member: Member, held: Standing, *ends: int) -> Claim:
    return Claim(
        member=member.id,
        held=held,
        accepted_epoch=held.epoch,
        data_epoch=held.epoch,
        ends=list(ends),
    )


def join(held: Standing | None, member: Member, claim: Claim | None) -> Standing:
    return claimed(held, EMPTY, member, claim)


def test_a_member_that_never_had_company_goes_on_by_itself() -> None:
    found = join(None, ONE, says(ONE, ALONE))
    assert found == ALONE, "with a version that nobody has heard of, once it is stored"


def test_a_replica_that_had_left_the_set_never_leads_an_emptied_registry() -> None:
    """It only knows the time when it was in the set; the one that went on without it is away."""
    found = join(None, TWO, says(TWO, BOTH, 70, 7))

    assert (found.in_sync, found.master, found.claims != []) == ([], "", True)
    for force in (False, True):
        with pytest.raises(NotInSync, match=r"start one, then it heals.*--accept-loss.*70 and 7"):
            check_lead(found, TWO.id, alive=False, force=force, accept_loss=False)


def test_all_members_together_prove_how_the_group_stood() -> None:
    for first, second in itertools.permutations([(ONE, WITHOUT_TWO), (TWO, BOTH)]):
        waiting = join(None, first[0], says(*first))
        assert waiting.claims
        found = join(msgspec.structs.replace(waiting, version=1), second[0], says(*second))

        assert (found.in_sync, found.master, found.epoch) == ([ONE.id], ONE.id, 2)
        assert (found.version, found.claims) == (6, []), "above all that anybody heard of"


def test_an_old_copy_of_the_registry_is_noticed_by_the_first_who_knows_more() -> None:
    old = BOTH
    assert is_older(old, says(ONE, WITHOUT_TWO))
    assert not is_older(old, says(TWO, BOTH)) and not is_older(old, None)
    waiting = join(old, ONE, says(ONE, WITHOUT_TWO))
    assert waiting.in_sync == [] and waiting.claims, "the set of the copy counts no more"

    assert join(waiting, TWO, says(TWO, BOTH)).in_sync == [ONE.id]


def test_a_member_without_a_record_proves_nothing() -> None:
    waiting = join(join(None, ONE, says(ONE, BOTH)), NEW, None)

    assert waiting.claims and waiting.members == [NEW, ONE, TWO]
    assert join(waiting, TWO, None).claims, "of an earlier release: it said nothing"
    assert join(waiting, TWO, says(TWO, BOTH)).members == [ONE, TWO], "others join again"


def test_a_member_that_was_named_and_never_wrote_anything_down_has_nothing_to_say() -> None:
    """It joined, and its machine lost power before it followed: nobody else can be waited for."""
    named = msgspec.structs.replace(ALONE, version=4, members=[ONE, TWO])
    waiting = join(None, ONE, says(ONE, named))
    assert waiting.claims, "the other one is named, and away"

    found = join(waiting, TWO, empty_handed(waiting, TWO))
    assert (found.in_sync, found.master, found.members) == ([ONE.id], ONE.id, [ONE, TWO])
    assert found.claims == []

    assert empty_handed(waiting, NEW) is None, "nobody waits for it"
    in_the_set = join(None, ONE, says(ONE, BOTH))
    assert empty_handed(in_the_set, TWO) is None, "it had everything, and has nothing"


def test_a_member_whose_crash_took_something_is_not_in_the_set_that_is_taken_up() -> None:
    lacking = msgspec.structs.replace(says(ONE, BOTH), lacks=True)
    found = join(join(None, ONE, lacking), TWO, says(TWO, BOTH))
    assert (found.in_sync, found.master) == ([TWO.id], "")
    alone = msgspec.structs.replace(says(ONE, ALONE), lacks=True)
    assert join(None, ONE, alone).in_sync == [ONE.id], "nobody else has more"


def test_two_groups_of_one_name_are_never_mixed_by_themselves() -> None:
    """Somebody began anew with an empty server in an emptied registry, then the old ones came."""
    fresh = Standing(
        broker_group="main",
        version=4,
        epoch=1,
        master=NEW.id,
        in_sync=[NEW.id],
        members=[NEW],
        line="second",
    )
    waiting = join(fresh, ONE, says(ONE, BOTH))
    waiting = join(waiting, TWO, says(TWO, BOTH))

    assert waiting.in_sync == []
    with pytest.raises(NotInSync, match="two different groups of this name"):
        check_lead(waiting, ONE.id, alive=False, force=True, accept_loss=False)
    assert led(waiting, ONE.id, epoch=1_003).line == "first"


def test_a_person_decides_and_nobody_has_heard_of_a_later_version() -> None:
    waiting = join(None, TWO, says(TWO, BOTH))
    check_lead(waiting, TWO.id, alive=False, force=False, accept_loss=True)
    after = led(waiting, TWO.id, epoch=1_002)

    assert (after.in_sync, after.master, after.claims) == ([TWO.id], TWO.id, [])
    assert after.version >= BOTH.version
    with pytest.raises(NotInSync, match="start one"):
        forgotten(waiting, ONE.id, alive=False, accept_loss=False)
    without = forgotten(waiting, ONE.id, alive=False, accept_loss=True)
    assert (without.in_sync, without.master, without.claims) == ([TWO.id], "", [])


def test_nothing_is_changed_by_a_master_while_the_registry_knows_less() -> None:
    waiting = join(None, ONE, says(ONE, BOTH))
    assert last_known(waiting) == BOTH
    with pytest.raises(Exception, match="version"):
        resynced(waiting, epoch=waiting.epoch, in_sync=[ONE.id], version=waiting.version)


def test_whatever_happened_before_the_loss_whoever_may_lead_has_everything() -> None:
    """A group lives under random changes; each member knows a prefix of what the registry said, a
    master all that it acted on. After a loss members come back in any order, some never."""
    for seed in range(300):
        rng = random.Random(seed)
        members = [Member(id=f"{n:016d}", name=f"m{n}", address=f"h{n}:1") for n in range(3)]
        disks, acked = _life(rng, members)
        back = rng.sample(members, rng.randint(1, 3))
        held: Standing | None = None
        for member in back:
            held = join(held, member, says(member, disks[member.id]))
        assert held is not None
        for leader in held.in_sync:
            assert acked <= _has[leader], f"seed {seed}: {leader} lacks what was acknowledged"
        if len(back) == 3:
            assert held.claims == [], f"seed {seed}: all are back, nothing to ask a person"


_has: dict[str, set[int]] = {}


def _life(rng: random.Random, members: list[Member]) -> tuple[dict[str, Standing], set[int]]:
    """What is on each disk in the end, and what was acknowledged."""
    _has.clear()
    _has.update({member.id: set() for member in members})
    first = members[0]
    registry = Standing(
        broker_group="main",
        version=1,
        epoch=1,
        master=first.id,
        in_sync=[first.id],
        members=members,
        line="first",
    )
    disks, acked = {member.id: registry for member in members}, set[int]()
    for step in range(rng.randint(3, 25)):
        master, known = registry.master, disks[registry.master]
        match rng.choice(["ack", "ack", "shrink", "grow", "lead", "hear"]):
            case "ack" if known.epoch == registry.epoch and known.master == master:
                # Everybody whom the master knows or has asked for has it first.
                for each in {*known.in_sync, *registry.in_sync}:
                    _has[each].add(step)
                acked.add(step)
            case "shrink" if known == registry and len(registry.in_sync) > 1:
                gone = rng.choice([each for each in registry.in_sync if each != master])
                left = [each for each in registry.in_sync if each != gone]
                registry = _next(registry, in_sync=left)
            case "grow" if known == registry:
                new = rng.choice(members).id
                _has[new] |= _has[master]
                registry = _next(registry, in_sync=sorted({*registry.in_sync, new}))
            case "lead" if len(registry.in_sync) > 1:
                new = rng.choice([each for each in registry.in_sync if each != master])
                left = [each for each in registry.in_sync if each != master]
                registry = _next(registry, in_sync=left, master=new, epoch=registry.epoch + 1)
            case "hear":
                disks[rng.choice(members).id] = registry
            case _:
                pass
    return disks, acked


def _next(standing: Standing, **changes: object) -> Standing:
    return msgspec.structs.replace(standing, version=standing.version + 1, **changes)
