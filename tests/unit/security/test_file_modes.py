"""One rule for every file with a secret."""

import os
from pathlib import Path

import pytest

from ternmq.security.file_modes import too_open


@pytest.mark.parametrize(
    ("mode", "own", "given"),
    [
        (0o600, False, False),
        (0o400, False, False),
        (0o640, True, False),  # Of a group, as orchestrators mount them.
        (0o440, True, False),
        (0o660, True, True),
        (0o604, True, True),
        (0o644, True, True),
        (0o601, True, True),
    ],
)
def test_one_rule_says_whether_others_may_use_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, own: bool, given: bool
) -> None:
    path = tmp_path / "key"
    path.touch()
    path.chmod(mode)
    with path.open("rb") as file:
        assert too_open(file.fileno()) == (mode if own else 0)
        owner = path.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert too_open(file.fileno()) == (mode if given else 0)
