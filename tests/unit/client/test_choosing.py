"""Q1: round robin, random, weighted random."""

from collections import Counter
from random import Random

from ternmq.client.choosing import Chooser, able, at_home
from ternmq.wire.placement import Home

NAMES = ["east", "north", "west"]


def counted(chooser: Chooser, weights: dict[str, int], times: int = 3_000) -> Counter[str]:
    return Counter(chooser.pick(NAMES, weights) for _ in range(times))


def test_round_robin_gives_everybody_the_same() -> None:
    assert set(counted(Chooser("round_robin", Random(1).random), {"west": 1}).values()) == {1_000}


def test_random_gives_everybody_about_the_same() -> None:
    shares = counted(Chooser("random", Random(1).random), {"west": 1})

    assert all(900 < shares[name] < 1_100 for name in NAMES)


def test_weights_say_how_much_a_group_gets() -> None:
    shares = counted(Chooser("weighted", Random(1).random), {"east": 300, "north": 0})

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
    assert at_home("orders", NAMES, Home(groups=["west", "south"])) == ["west"]
    assert at_home("orders", NAMES, Home(groups=["south"])) == ["south"]
