"""host:port and back."""

import pytest

from ternmq.core.errors import BadRequest
from ternmq.rpc.address import join_address, split_address


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:7700", ("127.0.0.1", 7700)),
        ("localhost:0", ("localhost", 0)),
        ("broker-1.example.com:65535", ("broker-1.example.com", 65535)),
        ("[::1]:7700", ("::1", 7700)),
    ],
)
def test_addresses_read_and_print_the_same(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts
    assert join_address(*parts) == text


@pytest.mark.parametrize(
    "text",
    ["", ":", "host", "host:", ":7700", "host:port", "host:65536", "host:-1", "::1", "::1:5"],
)
def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(BadRequest, match="host:port"):
        split_address(text)


@pytest.mark.parametrize("text", ["a b:1", "a/b:1", "user@host:1", "[::1:1", "[]:1", "a,b:1"])
def test_strange_hosts_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        split_address(text)


def test_a_default_port_is_used_where_none_is_written() -> None:
    assert split_address("host", default_port=5) == ("host", 5)
    assert split_address("[::1]", default_port=5) == ("::1", 5)
    assert split_address("host:6", default_port=5) == ("host", 6)
    with pytest.raises(BadRequest):
        split_address("host:", default_port=5)
