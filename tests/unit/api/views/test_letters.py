"""Letters that are near each other are read at once."""

from ternmq.api.views.letters import GAP_MAX, STRETCH_MAX, read_together


def test_near_ranges_are_one_stretch_and_far_ones_are_not() -> None:
    far = GAP_MAX + 11

    assert read_together([]) == []
    assert read_together([(0, 5), (7, 10), (10 + far, 12 + far)]) == [
        [(0, 5), (7, 10)],
        [(10 + far, 12 + far)],
    ]


def test_every_second_letter_of_many_is_read_in_few_stretches_of_bounded_length() -> None:
    ranges = [(at, at + 1) for at in range(0, 50_000, 2)]

    stretches = read_together(ranges)

    assert [each for stretch in stretches for each in stretch] == ranges
    assert len(stretches) == -(-50_000 // STRETCH_MAX)
    assert all(stretch[-1][1] - stretch[0][0] <= STRETCH_MAX for stretch in stretches)
