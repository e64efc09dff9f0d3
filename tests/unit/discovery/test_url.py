"""tern:// and terns:// URLs."""

from pathlib import Path

import pytest

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.discovery.url import format_url, parse_url, read_url, with_tls_files
from ternmq.security.tls.certificate_files import CertificateFiles


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
        "tern://a:1?ca=x",
        "terns://",
        "terns://a:1?ca=",
        "terns://a:1?cert=x",
    ],
)
def test_what_is_no_url_of_ours_is_named_in_the_error(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_url(url)

    assert repr(url) in caught.value.message


def test_terns_names_files_behind_the_question_mark() -> None:
    assert read_url("tern://a:1").tls is None
    assert read_url("terns://a:1,b:2/").tls == CertificateFiles()
    named = read_url("terns://a:1?ca=/x/ca.pem&cert=c.pem&key=k%20y.pem")

    assert named.addresses == ["a:1"]
    assert named.tls == CertificateFiles(
        ca=Path("/x/ca.pem"), certificate=Path("c.pem"), key=Path("k y.pem")
    )
    assert read_url(format_url(["a:1"], tls=True)).tls is not None


def test_files_of_options_go_over_those_of_the_url() -> None:
    url = with_tls_files("terns://a:1?ca=/old.pem", {"ca": "/new & better.pem", "cert": ""})

    assert read_url(url).tls == CertificateFiles(ca=Path("/new & better.pem"))
    assert with_tls_files("tern://a:1", {"ca": ""}) == "tern://a:1"
    with pytest.raises(BadConfig, match="write terns://"):
        with_tls_files("tern://a:1", {"ca": "/ca.pem"})
