"""The user in a url: taken out, and never with a password."""

import pytest

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.discovery.url import parse_url, with_tls_files
from ternmq.discovery.url_user import redacted, split_user


@pytest.mark.parametrize(
    ("url", "user", "rest"),
    [
        ("tern://h:1", "", "tern://h:1"),
        ("tern://alice@h:1", "alice", "tern://h:1"),
        ("terns://alice@a:1,b:2?ca=x", "alice", "terns://a:1,b:2?ca=x"),
        ("tern://[::1]:7", "", "tern://[::1]:7"),
        ("nonsense", "", "nonsense"),
        ("terns://h:1?ca=/x/a@b.pem", "", "terns://h:1?ca=/x/a@b.pem"),
        ("terns://alice@h:1?ca=/x/a@b.pem", "alice", "terns://h:1?ca=/x/a@b.pem"),
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


@pytest.mark.parametrize(
    "url",
    [
        "tern://admin:sE/canary@h:1",
        "tern://admin:sE?canary@h:1",
        "tern://admin:sE@canary@h:1",
        "tern://admin:sE,canary@h:1",
        "tern://who/canary@h:1",
        "tern://h:1,admin:canary@h:2",
        "tern://h:1?password=canary",
        "terns://h:1?password=canary",
        "terns://h:1?canary",
        "terns://h:1?cert=x&canary",
        "terns://admin:canary?ca=canary@h:1",
        "admin:canary@h:1",
        "http://admin:canary@h:1",
    ],
)
def test_what_could_be_a_password_in_a_wrong_url_is_not_repeated(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_url(url)
    assert "canary" not in caught.value.message
    with pytest.raises(BadConfig) as named:
        with_tls_files(url.replace("terns://", "tern://"), {"ca": "x"})
    assert "canary" not in named.value.message


@pytest.mark.parametrize("url", ["tern://@h:1", "tern://%broker@h:1", "tern://a b@h:1"])
def test_a_user_is_a_name(url: str) -> None:
    with pytest.raises(BadRequest):
        split_user(url)
