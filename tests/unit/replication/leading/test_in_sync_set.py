"""The in-sync set: whoever the registry names has everything that counts, whatever gets lost."""

import random

import pytest

from ternmq.replication.config import ReplicaLost
from ternmq.replication.leading.in_sync_set import BEHIND_MAX, InSync, KnownMember, Proposal, Rules

ME, B, C = "a" * 16, "b" * 16, "c" * 16
ALL = frozenset({ME, B, C})


def known(
    *in_sync: str, version: int = 1, members: frozenset[str] = ALL, waits: bool = True
) -> KnownMember:
    return KnownMember(version=version, in_sync=frozenset(in_sync), members=members, waits=waits)


def leader(
    *in_sync: str,
    policy: ReplicaLost = ReplicaLost.READ_ONLY,
    wait: bool = True,
    waits: bool = True,
) -> InSync:
    said = known(*in_sync, waits=waits)
    return InSync(ME, said, Rules(lost=policy, wait=wait), now=0.0)


def test_alone_in_the_set_everything_written_counts() -> None:
    assert leader(ME).mark(0, 100) == 100


def test_a_member_of_the_set_that_never_came_holds_everything_up() -> None:
    assert leader(ME, B).mark(0, 100) == 0


def test_the_slowest_required_member_sets_the_mark() -> None:
    group = leader(ME, B, C)
    for member, end in ((B, 80), (C, 60)):
        group.came(member, 0.0)
        group.holds(member, 0, end, 0.0)

    assert group.mark(0, 100) == 60


def test_a_member_is_required_before_the_change_that_adds_it_is_sent() -> None:
    group = leader(ME, B)
    group.came(C, 0.0)
    group.holds(C, 0, 50, 0.0)

    proposal = group.propose(0.0, {0: 50})

    assert proposal == Proposal(ALL, 1)
    assert group.required == {B, C}


def test_a_member_that_lacks_something_safe_is_not_added() -> None:
    group = leader(ME, B)
    group.came(C, 0.0)
    group.holds(C, 0, 49, 0.0)

    assert group.propose(0.0, {0: 50}) is None


def test_a_stranger_is_not_added() -> None:
    group = leader(ME, B)
    group.came("f" * 16, 0.0)
    group.holds("f" * 16, 0, 50, 0.0)

    assert group.propose(0.0, {0: 50}) is None


def test_a_late_member_is_required_until_its_removal_is_known() -> None:
    group = leader(ME, B, C)
    group.came(B, 9.0)

    proposal = group.propose(9.0, {0: 0})

    assert proposal == Proposal(frozenset({ME, B}), 1)
    assert C in group.required
    group.learn(known(ME, B, version=2), 9.0)
    assert group.required == {B}


def test_the_last_replica_is_not_removed_where_messages_have_to_be_on_two() -> None:
    group = leader(ME, B)

    assert group.propose(9.0, {0: 0}) is None
    assert "do not answer" in (group.refusal(9.0) or "")


def test_a_new_leader_may_go_on_with_fewer_to_be_able_to_begin() -> None:
    assert leader(ME, B).propose(9.0, {0: 0}, at_least=1) == Proposal(frozenset({ME}), 1)


def test_with_continue_the_last_replica_is_removed() -> None:
    group = leader(ME, B, policy=ReplicaLost.CONTINUE)

    assert group.propose(9.0, {0: 0}) == Proposal(frozenset({ME}), 1)
    group.learn(known(ME, version=2), 9.0)
    assert group.refusal(9.0) is None


def test_alone_in_the_set_of_a_larger_group_messages_are_refused() -> None:
    assert 'replica_lost = "continue"' in (leader(ME).refusal(0.0) or "")


def test_a_group_of_one_server_takes_messages() -> None:
    alone = known(ME, members=frozenset({ME}))

    group = InSync(ME, alone, Rules(), now=0.0)

    assert group.refusal(100.0) is None


def test_a_change_without_an_answer_comes_again_until_the_version_is_another() -> None:
    group = leader(ME, B, C)
    group.came(B, 9.0)
    first = group.propose(9.0, {0: 0})
    group.came(C, 9.5)

    assert group.propose(9.6, {0: 0}) is first
    group.learn(known(ME, B, C, version=1), 9.7)
    assert group.propose(9.7, {0: 0}) is first
    group.learn(known(ME, B, C, version=2), 9.8)
    assert group.proposal is None


def test_who_has_nothing_to_do_is_not_late() -> None:
    group = leader(ME, B)
    group.came(B, 0.0)
    group.holds(B, 0, 10, 0.0)
    group.look(60.0, {0: 10})

    assert group.late(61.0) == frozenset()
    assert group.late(64.0) == {B}


def test_a_member_whose_connection_is_lost_is_late_after_the_timeout() -> None:
    group = leader(ME, B)
    group.came(B, 0.0)
    group.holds(B, 0, 10, 0.0)
    group.gone(B)
    group.look(60.0, {0: 10})

    assert group.late(60.0) == {B}


def test_a_member_that_comes_again_and_again_and_takes_nothing_is_late() -> None:
    group = leader(ME, B, C)
    for tenth in range(40):
        group.came(B, tenth / 10)
        group.holds(B, 0, 50, tenth / 10)
        group.gone(B)

    assert B in group.late(4.0)


def test_one_that_left_for_standing_still_is_not_added_before_it_moves() -> None:
    group = leader(ME, B, C)
    for member in (B, C):
        group.came(member, 0.0)
        group.holds(member, 0, 10, 0.0)
    group.holds(B, 0, 20, 9.0)
    group.propose(9.0, {0: 10})
    group.learn(known(ME, B, version=2), 9.0)

    assert group.propose(9.0, {0: 10}) is None
    group.holds(C, 0, 20, 9.5)
    assert group.propose(9.5, {0: 20}) == Proposal(ALL, 2)


def test_a_master_waits_until_the_registry_says_that_it_does_not() -> None:
    group = leader(ME, B, wait=False)
    group.came(B, 0.0)

    assert group.waits
    assert group.propose(0.0, {0: 0}) == Proposal(frozenset({ME, B}), 1, waits=False)
    assert group.waits, "the change may not be carried out"
    group.learn(known(ME, B, version=2, waits=False), 0.0)
    assert not group.waits
    assert group.propose(0.0, {0: 0}) is None


def test_a_master_that_waits_again_says_so_when_all_of_the_set_have_all_that_counts() -> None:
    group = leader(ME, B, waits=False)
    group.came(B, 0.0)
    group.holds(B, 0, 10, 0.0)

    assert group.waits
    assert group.propose(0.0, {0: 20}) is None
    group.holds(B, 0, 20, 0.1)
    assert group.propose(0.1, {0: 20}) == Proposal(frozenset({ME, B}), 1, waits=True)


def test_a_master_that_does_not_wait_takes_messages_alone_and_without_an_answer() -> None:
    group = leader(ME, wait=False, waits=False)
    assert group.refusal(0.0) is None

    group = leader(ME, B, wait=False, waits=False)
    assert group.refusal(9.0) is None
    assert group.propose(9.0, {0: 0}) == Proposal(frozenset({ME}), 1, waits=False)


def test_for_a_master_that_does_not_wait_a_member_is_near_or_late() -> None:
    group = leader(ME, B, wait=False, waits=False)
    group.came(B, 0.0)
    group.came(C, 0.0)
    for second in range(1, 6):
        written = second * BEHIND_MAX
        group.holds(B, 0, written - 100, float(second))
        group.holds(C, 0, second, float(second))
        group.look(float(second), {0: written})

    assert group.late(5.0) == frozenset()
    assert group.propose(5.0, {0: 5 * BEHIND_MAX}) is None, "C is too far behind"
    group.look(9.0, {0: 9 * BEHIND_MAX})
    assert group.late(9.0) == {B}, "it moved, and fell behind all the same"


class World:
    """A registry, members that write at their own pace, and a network that loses and delays."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        policy = self.chance.choice(list(ReplicaLost))
        wait, waits = self.chance.choice([(True, True), (True, False), (False, True)])
        self.registry = known(ME, B, C, waits=waits)
        self.group = InSync(ME, self.registry, Rules(lost=policy, wait=wait), now=0.0)
        self.now = 0.0
        self.written = 0
        self.safe = 0
        self.held = {B: 0, C: 0}
        self.on_their_way: list[Proposal] = []
        self.answers: list[KnownMember] = []

    def step(self) -> None:
        self.now += self.chance.random()
        often = [self.write, self.member_works, self.member_says] * 2
        rarely = [self.propose, self.carry_out, self.hear, self.cut, self.lose]
        self.chance.choice([*often, *rarely])()
        self.group.look(self.now, {0: self.written})
        counts = self.group.mark(0, self.written) if self.group.waits else self.written
        self.safe = max(self.safe, counts)
        for member in self.registry.in_sync - {ME} if self.registry.waits else ():
            assert self.held[member] >= self.safe, "the registry names one that lacks something"

    def write(self) -> None:
        self.written += self.chance.randrange(1, 10)

    def member_works(self) -> None:
        member = self.chance.choice([B, C])
        self.held[member] = self.chance.randint(self.held[member], self.written)

    def member_says(self) -> None:
        member = self.chance.choice([B, C])
        copy = self.group.copies.get(member)
        if copy is None or not copy.connected:
            self.group.came(member, self.now)
        self.group.holds(member, 0, self.held[member], self.now)

    def propose(self) -> None:
        proposal = self.group.propose(self.now, {0: self.safe})
        if proposal is not None:
            self.on_their_way.append(proposal)

    def carry_out(self) -> None:
        """Any of those under way, however old, perhaps more than once."""
        if self.on_their_way:
            proposal = self.chance.choice(self.on_their_way)
            if proposal.version == self.registry.version:
                self.registry = known(
                    *proposal.in_sync, version=proposal.version + 1, waits=proposal.waits
                )
            self.answers.append(self.registry)

    def hear(self) -> None:
        if self.answers:
            self.group.learn(self.chance.choice(self.answers), self.now)

    def cut(self) -> None:
        self.group.gone(self.chance.choice([B, C]))

    def lose(self) -> None:
        if self.on_their_way:
            self.on_their_way.remove(self.chance.choice(self.on_their_way))


@pytest.mark.parametrize("seed", range(60))
def test_whoever_the_registry_names_has_everything_that_counts(seed: int) -> None:
    world = World(seed)
    for _ in range(400):
        world.step()


def test_a_late_member_whose_connection_looks_open_is_not_added_again_at_once() -> None:
    """Found by the cluster simulation: a replica without power was removed and added in turns, many
    times a second, for as long as TCP took to notice."""
    group = leader(ME, B, C)
    for member in (B, C):
        group.came(member, 0.0)
        group.holds(member, 0, 50, 0.0)
    group.holds(C, 0, 60, 4.0)
    assert group.propose(4.0, {0: 50}) == Proposal(frozenset({ME, C}), 1)
    group.learn(known(ME, C, version=2), 4.0)

    assert group.propose(4.1, {0: 50}) is None

    group.holds(B, 0, 60, 5.0)
    assert group.propose(5.0, {0: 60}) == Proposal(ALL, 2)


def test_the_one_that_led_before_is_not_waited_for_unless_it_has_come() -> None:
    group = leader(ME, B, C)
    group.came(C, 0.0)
    group.give_up_on(B)
    group.give_up_on(C)
    assert group.late(0.0) == {B}
    assert group.propose(0.0, {0: 0}, at_least=1) == Proposal(frozenset({ME, C}), 1)
    group.came(B, 0.0)
    assert group.late(0.0) == frozenset(), "it is back"
