"""The settings of the storage are whole numbers with bounds, refused by name."""

from typing import Any

import pytest

from ternmq.core.errors import BadConfig
from ternmq.storage.config import StorageConfig


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"flush": "often"}, "flush must be sync or async, got 'often'"),
        ({"segment_size": 1}, "segment_size must be at least"),
        ({"min_free": True}, "min_free must be a whole number, got True"),
        ({"pull_keep": -1}, "pull_keep must be at least 0, got -1"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadConfig, match=text):
        StorageConfig(**options)
