"""Limits are checked at birth."""

from typing import Any

import pytest

from ternmq.core.errors import BadConfig
from ternmq.core.units import MIB
from ternmq.rpc.limits import ServerLimits


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections_max": 0},
        {"inbound_max": MIB},
        {"server_inbound_max": 15 * MIB},
        {"write_max": MIB},
        {"hello_timeout": 0},
        {"frame_timeout": -1},
        {"idle_timeout": 0},
        {"sweep": 0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_limit_out_of_its_bounds_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        ServerLimits(**wrong)
