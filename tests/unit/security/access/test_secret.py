"""Secrets are carried and not shown; where a password comes from."""

import pickle
from pathlib import Path

import pytest

from ternmq.core.errors import BadConfig
from ternmq.security.access.secret import Secret, find_password, read_secret

CANARY = "canary-7f3a"


def filed(folder: Path, text: str = CANARY + "\n", mode: int = 0o600) -> Path:
    path = folder / "password"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_a_secret_is_not_in_what_is_printed_formatted_or_pickled() -> None:
    secret = Secret(CANARY)

    for text in (str(secret), repr(secret), f"{secret}", f"{[secret]}", f"{secret!s:>10}"):
        assert CANARY not in text
    with pytest.raises(TypeError, match="not written down"):
        pickle.dumps(secret)
    assert secret.reveal() == CANARY


def test_a_file_is_read_to_the_end_of_its_first_line(tmp_path: Path) -> None:
    assert read_secret(filed(tmp_path, CANARY + "\nmore"), "it").reveal() == CANARY


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(BadConfig, match="chmod 600") as caught:
        read_secret(filed(tmp_path, mode=mode), "it")
    assert CANARY not in caught.value.message


@pytest.mark.parametrize("text", ["", "\n", "\n" + CANARY])
def test_a_file_without_a_first_line_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfig, match="empty"):
        read_secret(filed(tmp_path, text), "it")


def test_what_was_given_goes_over_the_file_and_that_over_the_environment(tmp_path: Path) -> None:
    path = filed(tmp_path)
    environment = {"TERN_PASSWORD": "from the environment"}

    assert find_password("given", path, environment) == Secret("given")
    assert find_password(None, path, environment) == Secret(CANARY)
    assert find_password(None, None, environment) == Secret("from the environment")
    assert find_password(None, None, {"TERN_PASSWORD_FILE": str(path)}) == Secret(CANARY)
    assert find_password(None, None, {}) is None
