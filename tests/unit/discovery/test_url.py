"""tern:// URLs."""

import pytest

from ternmq.core.errors import BadRequest
from ternmq.discovery.url import format_url, parse_url


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("tern://127.0.0.1:7700", ["127.0.0.1:7700"]),
        ("tern://127.0.0.1:7700/", ["127.0.0.1:7700"]),
        ("tern://meta.example.com", ["meta.example.com:7700"]),
        ("tern://a:1,b:2,c", ["a:1", "b:2", "c:7700"]),
        ("tern://a:1,a:1", ["a:1"]),
        ("tern://[::1]:7700,[fe80::2]", ["[::1]:7700", "[fe80::2]:7700"]),
    ],
)
def test_a_url_names_meta_servers_in_order(url: str, addresses: list[str]) -> None:
    assert parse_url(url) == addresses
    assert parse_url(format_url(addresses)) == addresses


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:7700",
        "http://127.0.0.1:7700",
        "tern:/a:1",
        "tern://",
        "tern://a:1,",
        "tern://a:b",
        "tern://a:0",
        "tern://a:70000",
        "tern://a:1/path",
        "tern://::1:7700",
    ],
)
def test_what_is_no_url_of_ours_is_named_in_the_error(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_url(url)

    assert repr(url) in caught.value.message
