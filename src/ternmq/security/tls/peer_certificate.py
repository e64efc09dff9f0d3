"""What is known of a certificate that was checked: whom it names, and until when.

A value, made from what the `ssl` module tells after a handshake. Only certificates that an
authority of ours has signed become one; who shows none has none. Never holds a key.
"""

import hashlib
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OF_SERVERS: Final = "tern://"
"""URIs that begin so name servers (`node_name`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """The certificate of the other side of a connection; or our own, as others see it."""

    common_name: str
    uris: tuple[str, ...]
    """Subject alternative names that are URIs: servers of a cluster have `tern://…` ones."""
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    not_after: float
    """Unix time, in seconds."""
    sha256: bytes
    """Of the whole certificate (DER). Of a server's: the channel binding `tls-server-end-point`,
    for certificates signed with SHA-256 as RFC 5929 has it; both sides are ours, so it is always
    this one."""

    def is_for(self, host: str) -> bool:
        """Would a client that was told this host take it? For advice; OpenSSL decides."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            wanted = host.lower().rstrip(".")
            around = "*." + wanted.partition(".")[2]
            return any(name.lower() in (wanted, around) for name in self.dns_names)
        return any(ipaddress.ip_address(each) == address for each in self.ip_addresses)

    @property
    def user(self) -> str:
        """Whom it names where people and applications are asked for: the common name, else its
        only DNS name. Empty: nobody, and so is every server of a cluster."""
        if any(uri.startswith(OF_SERVERS) for uri in self.uris):
            return ""
        if self.common_name or len(self.dns_names) != 1:
            return self.common_name
        return self.dns_names[0]

    @property
    def fingerprint(self) -> str:
        """For people and logs: the beginning of the hash."""
        return self.sha256[:8].hex()


def certificate_of(channel: ssl.SSLObject) -> PeerCertificate | None:
    """What the other side has shown and was checked; None: nothing."""
    shown, der = channel.getpeercert(), channel.getpeercert(True)
    if not shown or not der:
        return None
    return certificate_from(shown, der)


def certificate_from(shown: Mapping[str, Any], der: bytes) -> PeerCertificate:
    names: tuple[tuple[str, str], ...] = shown.get("subjectAltName", ())
    return PeerCertificate(
        common_name=_common_name(shown),
        uris=_of_type(names, "URI"),
        dns_names=_of_type(names, "DNS"),
        ip_addresses=_of_type(names, "IP Address"),
        not_after=float(ssl.cert_time_to_seconds(shown["notAfter"])),
        sha256=hashlib.sha256(der).digest(),
    )


def _common_name(shown: Mapping[str, Any]) -> str:
    for part in shown.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""


def _of_type(names: tuple[tuple[str, str], ...], kind: str) -> tuple[str, ...]:
    return tuple(value for each, value in names if each == kind)
