"""Q1: round robin, random, weighted random."""

from collections import Counter
from random import Random

from ternmq.client.choosing import Chooser, able

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
