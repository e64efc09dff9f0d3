"""`tern://CLUSTER/KIND/GROUP`: the name of a server in its certificate.

Kinds are `realtime` (brokers), `delay` and `meta`; a meta server is of no group: `tern://shop/meta`.
One certificate may have several names of one cluster: an all-in-one node is three servers.
"""

import re
from dataclasses import dataclass

from ternmq.core.errors import BadConfig
from ternmq.core.ids import check_name
from ternmq.security.tls.peer_certificate import OF_SERVERS, PeerCertificate

META = "meta"
KINDS = ("realtime", "delay", META)
_NAME = re.compile(r"tern://([A-Za-z0-9._-]+)/(?:(meta)|(realtime|delay)/([A-Za-z0-9._-]+))\Z")


@dataclass(frozen=True, slots=True)
class NodeName:
    """Which server of which cluster."""

    cluster: str
    kind: str
    broker_group: str = ""

    @property
    def uri(self) -> str:
        group = f"/{self.broker_group}" if self.broker_group else ""
        return f"{OF_SERVERS}{self.cluster}/{self.kind}{group}"


def make_node_name(cluster: str, kind: str, broker_group: str = "") -> NodeName:
    """One that may stand in a certificate; raises what is wrong with it."""
    check_name("cluster", cluster)
    if kind not in KINDS:
        raise BadConfig(f"{kind!r} is no kind of server; there are {', '.join(KINDS)}")
    if kind == META:
        return NodeName(cluster, kind)
    check_name("broker group", broker_group)
    return NodeName(cluster, kind, broker_group)


def node_names(certificate: PeerCertificate) -> tuple[NodeName, ...]:
    """Every server that it names; other URIs are passed over."""
    found = (_NAME.match(uri) for uri in certificate.uris)
    return tuple(
        NodeName(each[1], each[2] or each[3], each[4] or "") for each in found if each is not None
    )


def cluster_of(names: tuple[NodeName, ...]) -> str:
    """Of which cluster a server with these names is; empty: they prove nothing."""
    clusters = sorted({name.cluster for name in names})
    if len(clusters) > 1:
        raise BadConfig(
            f"this certificate is for several clusters ({', '.join(clusters)}); a server is of one"
        )
    return clusters[0] if clusters else ""
