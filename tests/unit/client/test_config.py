"""The settings of a client: their limits, and what a wrong one is answered."""

import pytest

from ternmq.client.config import ClientConfig, make_config
from ternmq.core.errors import BadConfig


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("on_full", "drop", "on_full is 'drop'; it can be 'wait', 'raise'"),
        ("compression", None, "compression is None; it can be 'zstd', 'lz4', 'none'"),
        ("choose", 1, "choose is 1; it can be 'round_robin', 'random', 'weighted'"),
        ("lazy", 1, "lazy is 1; it is True or False"),
        ("inflight_max", 257, "inflight_max is 257; it can be 1 to 256"),
        ("inflight_max", True, "inflight_max is True; it is a whole number, 1 to 256"),
        ("inflight_max", None, "inflight_max is None; it is a whole number, 1 to 256"),
        ("resend_times", 2.5, "resend_times is 2.5; it is a whole number, 0 to 1000"),
        ("tries_max", 0, "tries_max is 0; it can be 1 to 1000"),
        ("tries_max_nowait", "3", "tries_max_nowait is '3'; it is a whole number, 1 to 1000"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_it_can_be(
    name: str, value: object, said: str
) -> None:
    with pytest.raises(BadConfig) as refused:
        make_config({name: value})

    assert refused.value.message == said


def test_both_ends_of_every_limit_are_allowed() -> None:
    assert ClientConfig(inflight_max=1).inflight_max == 1
    assert ClientConfig(inflight_max=256).inflight_max == 256
    assert ClientConfig(tries_max=None).tries_max is None
