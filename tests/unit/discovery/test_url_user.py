"""The user in a url: taken out, and never with a password."""

import pytest

from ternmq.core.errors import BadRequest
from ternmq.discovery.url import parse_url
from ternmq.discovery.url_user import redacted, split_user


@pytest.mark.parametrize(
    ("url", "user", "rest"),
    [
        ("tern://h:1", "", "tern://h:1"),
        ("tern://alice@h:1", "alice", "tern://h:1"),
        ("terns://alice@a:1,b:2?ca=x", "alice", "terns://a:1,b:2?ca=x"),
        ("tern://[::1]:7", "", "tern://[::1]:7"),
        ("nonsense", "", "nonsense"),
    ],
)
def test_a_user_is_taken_out(url: str, user: str, rest: str) -> None:
    assert split_user(url) == (user, rest)


def test_servers_are_found_behind_a_user() -> None:
    assert parse_url("tern://alice@a:1,b:2") == ["a:1", "b:2"]


@pytest.mark.parametrize(
    "url", ["tern://alice:canary@h:1", "tern://:canary@h", "terns://a:canary@h"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    for read in (split_user, parse_url):
        with pytest.raises(BadRequest, match="TERN_PASSWORD") as caught:
            read(url)
        assert "canary" not in caught.value.message
    assert "canary" not in redacted(url)


@pytest.mark.parametrize("url", ["tern://@h:1", "tern://%broker@h:1", "tern://a b@h:1"])
def test_a_user_is_a_name(url: str) -> None:
    with pytest.raises(BadRequest):
        split_user(url)
