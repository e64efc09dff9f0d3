"""The settings of a gateway: each has a type and bounds, and who breaks them is told which."""

from typing import Any

import pytest

from ternmq.core.errors import BadConfig
from ternmq.gateway.config import DELAY_MS_MAX, GatewayConfig


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": 7}, "url must be a text, got 7"),
        ({"port": 70_000}, "port must be 0 to 65535, got 70000"),
        ({"port": "http"}, "port must be a whole number, got 'http'"),
        ({"start": "now"}, "start must be earliest or latest, got 'now'"),
        ({"poll_ms": 99}, "poll_ms must be 100 to 60000, got 99"),
        ({"delay_ms_max": 0}, f"delay_ms_max must be 1 to {DELAY_MS_MAX}, got 0"),
        ({"ordered_groups": "billing"}, "ordered_groups must be texts, got 'billing'"),
        ({"topic_aliases": {"a": 1}}, "topic_aliases must be texts by name, got {'a': 1}"),
        ({"host": "0.0.0.0"}, "listens on loopback only"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadConfig) as refused:
        GatewayConfig(**{"url": "tern://127.0.0.1:7700", **options})

    assert text in str(refused.value)


def test_what_is_left_out_has_its_default() -> None:
    config = GatewayConfig(url="tern://127.0.0.1:7700", ordered_groups=("pay.*",))

    assert config.address == "127.0.0.1:8081"
    assert config.makes_ordered("pay.out")
    assert not config.makes_ordered("billing")
