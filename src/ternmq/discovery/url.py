"""`tern://host:port[,host:port...]`: how people say where a cluster is. Never looks a name up.

`terns://` is the same over TLS, with `?ca=FILE&cert=FILE&key=FILE` for who does not trust the
authorities of the system, or shows a certificate. Files are named here and read elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.discovery.url_user import redacted, split_user
from ternmq.rpc.address import join_address, split_address
from ternmq.security.access.secret import HIDDEN
from ternmq.security.tls.certificate_files import CertificateFiles

SCHEME = "tern://"
TLS_SCHEME = "terns://"
META_PORT = 7700
TLS_FILES = {"ca": "ca", "cert": "certificate", "key": "key"}
"""What may stand behind the question mark, and which file that is."""


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """A url, taken apart."""

    addresses: list[str]
    """Of the meta servers, in the order written, each once."""
    tls: CertificateFiles | None
    """None: in the clear."""


def parse_url(url: str) -> list[str]:
    """The meta servers' addresses, in the order written, each once; the port may be left out."""
    return read_url(url).addresses


def read_url(url: str) -> ClusterUrl:
    """Everything that the url says; raises `BadRequest` with what to write instead."""
    url = split_user(url)[1]
    if not isinstance(url, str) or not url.startswith((SCHEME, TLS_SCHEME)):
        shown = redacted(url) if isinstance(url, str) else url
        raise BadRequest(
            f"{shown!r} is not a TernMQ URL; write {SCHEME}127.0.0.1:{META_PORT}, or {TLS_SCHEME}… "
            "for a server with TLS"
        )
    scheme = TLS_SCHEME if url.startswith(TLS_SCHEME) else SCHEME
    places, _, query = url.removeprefix(scheme).partition("?")
    addresses: list[str] = []
    for part in places.removesuffix("/").split(","):
        try:
            host, port = split_address(part, default_port=META_PORT)
        except BadRequest as error:
            # The part could be half of a password.
            reason = "write host:port before '?'" if "@" in url else error.message
            raise BadRequest(f"{redacted(url)!r} is not a TernMQ URL: {reason}") from None
        if port == 0:
            raise BadRequest(
                f"{redacted(url)!r} is not a TernMQ URL: port 0 cannot be connected to"
            )
        address = join_address(host, port)
        if address not in addresses:
            addresses.append(address)
    if scheme == TLS_SCHEME:
        return ClusterUrl(addresses, _files(url, query))
    if query:
        raise BadRequest(
            f"{redacted(url)!r} is not a TernMQ URL: only {TLS_SCHEME} has settings behind '?'"
        )
    return ClusterUrl(addresses, None)


def format_url(addresses: list[str], *, tls: bool = False) -> str:
    """The URL that names these meta servers."""
    return (TLS_SCHEME if tls else SCHEME) + ",".join(addresses)


def with_tls_files(url: str, files: Mapping[str, str]) -> str:
    """The URL with these files (`ca`, `cert`, `key`) in it; they go over those that are there."""
    given = {name: str(Path(value).absolute()) for name, value in files.items() if value}
    if not given:
        return url
    if not url.startswith(TLS_SCHEME):
        raise BadConfig(
            f"files for TLS are named, and {redacted(url)!r} is in the clear: write {TLS_SCHEME}… "
        )
    places, _, query = url.partition("?")
    return f"{places}?{urlencode(dict(parse_qsl(query)) | given, safe='/')}"


def _files(url: str, query: str) -> CertificateFiles:
    found: dict[str, Path] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in TLS_FILES or not value:
            known = ", ".join(f"{each}=FILE" for each in TLS_FILES)
            named = name if value or name in TLS_FILES else HIDDEN
            raise BadRequest(
                f"{redacted(url)!r}: {named!r} is no setting of a URL; there are {known}"
            )
        found[TLS_FILES[name]] = Path(value)
    try:
        return CertificateFiles(**found)
    except BadConfig as error:
        raise BadRequest(f"{redacted(url)!r}: {error.message} (cert=FILE&key=FILE)") from error
