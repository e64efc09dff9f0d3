"""Where numbers of topics and groups go on: never where another registry does."""

import secrets

from ternmq.meta.id_allocation import COUNTED_BITS, FIRST_MIN, NUMBER_MAX, leap

COUNTED = (1 << COUNTED_BITS) - 1


def test_numbers_grow_and_the_lower_bits_go_on_counting() -> None:
    last = 57
    for _ in range(1_000):
        after = leap(last, secrets.randbelow)
        assert after > last
        assert after & COUNTED == last & COUNTED
        last = after + 1
    assert last < 2**53


def test_a_registry_of_an_earlier_release_goes_on_like_a_new_one() -> None:
    assert leap(57, lambda below: 0) == FIRST_MIN << COUNTED_BITS | 57


def test_two_copies_of_one_registry_go_on_apart() -> None:
    last = leap(0, lambda below: 5)

    assert leap(last, lambda below: 1) != leap(last, lambda below: 2)


def test_the_last_starts_of_all_are_still_below_what_may_be_in_use() -> None:
    assert leap(2**53, lambda below: below - 1) < NUMBER_MAX
