"""Numbers of attempts."""

from ternmq.pipeline.sink import stage


def test_no_attempt_number_is_drawn_twice() -> None:
    drawn = [stage.new_attempt() for _ in range(1_000)]

    assert len(set(drawn)) == 1_000
    assert all(0 <= number < 2**32 for number in drawn)
