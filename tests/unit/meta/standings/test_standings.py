"""Who may lead a broker group, and what its in-sync set may become; pure."""

import msgspec
import pytest

from ternmq.core.errors import AlreadyExists, BadRequest, Conflict, MasterAlive, NotInSync
from ternmq.meta.standings.standings import check_lead, forgotten, joined, led, left, resynced
from ternmq.wire.messages.standings import Member, Standing, standing_of

ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")
THREE = Member(id="3" * 16, name="three", address="h3:1")
EMPTY = Standing(broker_group="main")
GROUP = Standing(
    broker_group="main",
    version=9,
    epoch=4,
    master=ONE.id,
    in_sync=[ONE.id, TWO.id],
    members=[ONE, THREE, TWO],
)


def may_lead(
    member: Member, *, alive: bool = False, force: bool = False, accept_loss: bool = False
) -> None:
    check_lead(GROUP, member.id, alive=alive, force=force, accept_loss=accept_loss)


def test_the_first_member_ever_is_in_sync_and_later_ones_are_not() -> None:
    first = joined(None, EMPTY, ONE, history=False)
    assert first is not None
    second = joined(first, EMPTY, TWO, history=False)

    assert second is not None
    assert (second.in_sync, second.members, second.master) == ([ONE.id], [ONE, TWO], "")


def test_an_empty_first_member_of_a_group_with_a_history_is_not_in_sync() -> None:
    """The data is elsewhere: the broker of an earlier release that is not started yet."""
    first = joined(None, EMPTY, TWO, history=True)
    assert first is not None and first.in_sync == []
    with pytest.raises(NotInSync):
        check_lead(first, TWO.id, alive=False, force=True, accept_loss=False)


def test_joining_again_changes_name_and_address_and_nothing_else() -> None:
    moved = Member(id=TWO.id, name="two", address="h9:1")
    changed = joined(GROUP, EMPTY, moved, history=True)

    assert joined(GROUP, EMPTY, TWO, history=True) is None
    assert changed == msgspec.structs.replace(GROUP, members=[ONE, THREE, moved])


def test_only_a_member_that_is_in_sync_leads() -> None:
    """D7: an older, empty or damaged log can never lead."""
    may_lead(TWO)
    with pytest.raises(NotInSync, match=r"start one or two, which is in sync.*--accept-loss"):
        may_lead(THREE, force=True)
    with pytest.raises(NotInSync, match="not a member"):
        check_lead(GROUP, "f" * 16, alive=False, force=True, accept_loss=True)
    may_lead(THREE, accept_loss=True)


def test_a_master_that_may_be_alive_is_not_replaced_unless_it_is_meant() -> None:
    with pytest.raises(MasterAlive, match=r"h1:1.*tern broker handover main"):
        may_lead(TWO, alive=True)
    may_lead(TWO, alive=True, force=True)
    may_lead(ONE, alive=True)


def test_who_led_before_stays_in_the_set_until_the_new_master_takes_it_out() -> None:
    """The new one may turn out to have nothing; then the old one leads again."""
    wide = msgspec.structs.replace(GROUP, in_sync=[ONE.id, THREE.id, TWO.id])

    assert led(wide, TWO.id, epoch=5).in_sync == [ONE.id, TWO.id, THREE.id]
    assert led(wide, ONE.id, epoch=5).in_sync == [ONE.id, TWO.id, THREE.id]
    after = led(GROUP, TWO.id, epoch=5)
    assert (after.epoch, after.master, after.members) == (5, TWO.id, GROUP.members)


def test_with_a_master_from_outside_the_set_nobody_else_is_in_sync() -> None:
    """The others have what it lacks: they would have to throw it away first."""
    assert led(GROUP, THREE.id, epoch=5).in_sync == [THREE.id]


def test_the_set_is_changed_by_the_master_at_its_epoch_and_version_only() -> None:
    wanted = [THREE.id, ONE.id]
    assert resynced(GROUP, epoch=4, in_sync=wanted, version=9).in_sync == [ONE.id, THREE.id]
    for epoch, version in ((3, 9), (5, 9), (4, 8), (4, 10)):
        with pytest.raises(Conflict, match="epoch 4, version 9, not") as raised:
            resynced(GROUP, epoch=epoch, in_sync=wanted, version=version)
        assert standing_of(raised.value) == GROUP
    for nonsense in ([], [TWO.id], [ONE.id, "f" * 16]):
        with pytest.raises(BadRequest):
            resynced(GROUP, epoch=4, in_sync=nonsense, version=9)


def test_a_member_takes_itself_out_but_never_the_last_one() -> None:
    without = left(GROUP, TWO.id, epoch_seen=4)
    assert without is not None
    assert (without.in_sync, without.master) == ([ONE.id], ONE.id)
    assert left(GROUP, THREE.id, epoch_seen=1) is None, "it is not in the set"
    headless = left(GROUP, ONE.id, epoch_seen=4)
    assert headless is not None
    assert (headless.in_sync, headless.master) == ([TWO.id], "")
    with pytest.raises(Conflict, match="last in-sync"):
        left(without, ONE.id, epoch_seen=4)
    with pytest.raises(Conflict, match="is at epoch 4, not at 3"):
        left(GROUP, TWO.id, epoch_seen=3)
    surely = left(GROUP, THREE.id, epoch_seen=4, surely=True)
    assert surely == GROUP, "stored at a new version, so that no change under way adds it"
    with pytest.raises(Conflict, match="last in-sync"):
        left(without, ONE.id, epoch_seen=4, surely=True)


def test_a_member_that_is_gone_is_forgotten_with_care() -> None:
    def forget(standing: Standing, member: Member, accept_loss: bool = False) -> Standing:
        return forgotten(standing, member.id, alive=False, accept_loss=accept_loss)

    assert forget(GROUP, THREE).members == [ONE, TWO]
    after = forget(GROUP, TWO)
    assert (after.members, after.in_sync) == ([ONE, THREE], [ONE.id])
    with pytest.raises(AlreadyExists, match="two is running"):
        forgotten(GROUP, TWO.id, alive=True, accept_loss=True)
    with pytest.raises(NotInSync, match="first: tern broker promote main two"):
        forget(GROUP, ONE)
    with pytest.raises(NotInSync, match=r"last in-sync.*--accept-loss"):
        forget(after, ONE)
    with pytest.raises(BadRequest, match="it has one, three, two"):
        forget(GROUP, Member(id="f" * 16, name="", address=""))
    gone = forget(after, ONE, accept_loss=True)
    assert (gone.members, gone.in_sync, gone.master) == ([THREE], [], "")


def test_a_drain_is_over_when_the_last_member_is_forgotten() -> None:
    """A broker group of the same name that is made one day takes messages."""
    group = msgspec.structs.replace(GROUP, in_sync=[ONE.id], members=[ONE, TWO], draining=True)

    fewer = forgotten(group, TWO.id, alive=False, accept_loss=False)
    assert fewer.draining
    assert not forgotten(fewer, ONE.id, alive=False, accept_loss=True).draining


def test_where_the_master_did_not_wait_nobody_stays_in_the_set_of_its_successor() -> None:
    """Nobody knows who has what: the others come in again when they have what it has."""
    wide = [ONE.id, TWO.id, THREE.id]
    said = resynced(GROUP, epoch=4, in_sync=wide, version=9, waits=False)

    assert not said.waits
    assert led(said, TWO.id, epoch=5).in_sync == [TWO.id]
    assert led(said, ONE.id, epoch=5).in_sync == wide, "it has not changed"
    assert resynced(said, epoch=4, in_sync=wide, version=9).waits
