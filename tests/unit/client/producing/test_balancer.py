"""Q1: round robin, random, weighted random."""

from collections import Counter
from random import Random

from ternmq.client.producing.balancer import AFFINITY_BATCHES, Affinity, Balancer, able, at_home
from ternmq.wire.messages.order_keys import Home

NAMES = ["east", "north", "west"]


def counted(balancer: Balancer, weights: dict[str, int], times: int = 3_000) -> Counter[str]:
    return Counter(balancer.pick(NAMES, weights) for _ in range(times))


def test_round_robin_gives_everybody_the_same() -> None:
    assert set(counted(Balancer("round_robin", Random(1).random), {"west": 1}).values()) == {1_000}


def sent(balancer: Balancer, batches: int, names: list[str] = NAMES) -> list[str]:
    """Where the batches of one call go."""
    affinity = Affinity()
    return [
        balancer.stay(affinity, names) or balancer.pick(names, {}, affinity) for _ in range(batches)
    ]


def test_a_call_gives_several_batches_in_a_row_to_one_group() -> None:
    balancer = Balancer("round_robin", Random(1).random)

    calls = [sent(balancer, AFFINITY_BATCHES) for _ in NAMES]

    assert [len(set(call)) for call in calls] == [1, 1, 1]
    assert {call[0] for call in calls} == set(NAMES)


def test_calls_of_any_lengths_give_everybody_the_same() -> None:
    """Also those where a long and a short one alternate, which turns alone would not see."""
    for lengths in (
        [AFFINITY_BATCHES + 1],
        [1, AFFINITY_BATCHES],
        [2 * AFFINITY_BATCHES + 1, 3, 1],
    ):
        balancer = Balancer("round_robin", Random(1).random)
        got: Counter[str] = Counter()
        for number in range(999):
            got.update(sent(balancer, lengths[number % len(lengths)]))
        assert max(got.values()) - min(got.values()) <= AFFINITY_BATCHES, lengths


def test_a_stretch_ends_where_its_group_can_be_given_nothing() -> None:
    balancer, affinity = Balancer("round_robin", Random(1).random), Affinity()
    first = balancer.pick(NAMES, {}, affinity)
    left = [name for name in NAMES if name != first]

    assert balancer.stay(affinity, left) is None
    assert balancer.pick(left, {}, affinity) in left


def test_a_group_that_was_away_gets_its_share_and_no_more() -> None:
    balancer = Balancer("round_robin", Random(1).random)
    for _ in range(1_000):
        balancer.pick(NAMES[:2], {})

    assert set(counted(balancer, {}, 30).values()) == {10}


def test_random_gives_everybody_about_the_same() -> None:
    shares = counted(Balancer("random", Random(1).random), {"west": 1})

    assert all(900 < shares[name] < 1_100 for name in NAMES)


def test_weights_say_how_much_a_group_gets() -> None:
    shares = counted(Balancer("weighted", Random(1).random), {"east": 300, "north": 0})

    assert shares["north"] == 0
    assert 2.7 < shares["east"] / shares["west"] < 3.3


def test_a_group_of_weight_0_gets_nothing_whatever_the_way_of_choosing() -> None:
    assert able(NAMES, {"north": 0}) == ["east", "west"]
    assert able(NAMES, dict.fromkeys(NAMES, 0)) == NAMES  # Rather there than nowhere.


def test_a_topic_lives_on_as_many_groups_as_it_asks_for_the_same_for_everybody() -> None:
    two = at_home("orders", NAMES, Home(count=2))

    assert len(two) == 2
    assert at_home("orders", list(reversed(NAMES)), Home(count=2)) == two
    assert at_home("orders", NAMES, Home(count=9)) == NAMES
    left = [name for name in NAMES if name != two[0]]
    assert two[1] in at_home("orders", left, Home(count=2))  # One goes, the other stays.


def test_a_topic_lives_on_the_groups_it_names_also_while_they_are_away() -> None:
    assert at_home("orders", NAMES, Home(broker_groups=["west", "south"])) == ["west"]
    assert at_home("orders", NAMES, Home(broker_groups=["south"])) == ["south"]
