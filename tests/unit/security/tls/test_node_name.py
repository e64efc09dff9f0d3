"""Names of servers in certificates."""

import pytest

from ternmq.core.errors import BadConfig, BadName
from ternmq.security.tls.node_name import NodeName, cluster_of, make_node_name, node_names
from ternmq.security.tls.peer_certificate import PeerCertificate


def certificate(*uris: str) -> PeerCertificate:
    return PeerCertificate(
        common_name="x", uris=uris, dns_names=(), ip_addresses=(), not_after=0.0, sha256=bytes(32)
    )


def test_a_name_is_read_as_it_is_written() -> None:
    names = tuple(make_node_name("shop", kind, "east") for kind in ("meta", "realtime", "delay"))

    assert names[0] == NodeName("shop", "meta")
    assert node_names(certificate(*(name.uri for name in names))) == names


@pytest.mark.parametrize(
    "uri",
    [
        "tern://shop/realtime",
        "tern://shop/realtime/",
        "tern://shop/realtime/a/b",
        "tern://shop/meta/x",
        "tern:///realtime/a",
        "tern://shop/broker/a",
        "https://shop/realtime/a",
        "tern://shop/realtime/a?x",
        "tern://shop/realtime/a\n",
    ],
)
def test_what_is_no_name_of_a_server_proves_nothing(uri: str) -> None:
    assert node_names(certificate(uri)) == ()


def test_a_server_is_of_one_cluster() -> None:
    assert cluster_of(()) == ""
    with pytest.raises(BadConfig, match="several clusters"):
        cluster_of((NodeName("a", "meta"), NodeName("b", "meta")))


def test_a_bad_name_is_not_made() -> None:
    with pytest.raises(BadName):
        make_node_name("sh/op", "meta")
    with pytest.raises(BadConfig, match="no kind of server"):
        make_node_name("shop", "broker", "a")
