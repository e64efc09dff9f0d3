"""`host:port` as people write it, and back. Never looks a name up."""

import ipaddress
from typing import Any, NamedTuple

from ternmq.core.errors import BadRequest

PORT_MAX = 65_535
ADDRESS_SIZE = 18
"""Of a packed address: IPv6 and port, big-endian."""


def split_address(address: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Read `host:port`; an IPv6 host stands in brackets, `[::1]:7700`."""
    host, colon, port_text = address.rpartition(":")
    if address.endswith("]") or not colon:
        host, port_text = address, ""
    if not port_text and default_port is not None and not address.endswith(":"):
        port_text = str(default_port)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    plain = bare == host
    if not bare or any(letter in bare for letter in "[]/@?# ,") or (plain and ":" in bare):
        raise BadRequest(f"{address!r} is not an address; write host:port, or [::1]:port")
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= PORT_MAX):
        raise BadRequest(f"{address!r} has no port between 0 and {PORT_MAX}; write host:port")
    return bare, int(port_text)


def join_address(host: str, port: int) -> str:
    """The text that `split_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def endpoint(name: Any) -> tuple[str, int]:
    """Host and port out of what a socket calls itself (IPv6 has two more fields)."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)


def is_loopback(host: str) -> bool:
    """Is this reached from the same machine only? Names other than localhost may be anything."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


class Endpoints(NamedTuple):
    """Both ends of a connection, packed: 16 bytes and a port each."""

    client_ip: bytes
    client_port: int
    server_ip: bytes
    server_port: int


NOWHERE = Endpoints(bytes(16), 0, bytes(16), 0)
"""Of what came over no connection."""


def packed_endpoints(client: tuple[str, int], server: tuple[str, int]) -> Endpoints:
    """The two ends of a connection as a batch carries them."""
    return Endpoints(packed_ip(client[0]), client[1], packed_ip(server[0]), server[1])


def packed_ip(host: str) -> bytes:
    """16 bytes: IPv6, or IPv4 mapped into it; zeros for anything else."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return bytes(16)
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def packed_address_text(ip: bytes, port: int) -> str:
    """The address that a batch carries as 16 bytes and a port; empty where there is none."""
    if not any(ip):
        return ""
    address = ipaddress.IPv6Address(ip)
    return join_address(str(address.ipv4_mapped or address), port)


def unpacked_address_text(packed: bytes) -> str:
    """The address in the `ADDRESS_SIZE` bytes that a row of a merged batch carries, or in none."""
    return packed_address_text(packed[:-2], int.from_bytes(packed[-2:], "big"))


def packed_address(text: str) -> bytes:
    """The bytes of such a text; empty where it names no address."""
    try:
        host, port = split_address(text)
    except BadRequest:
        return b""
    ip = packed_ip(host)
    return ip + port.to_bytes(2, "big") if any(ip) else b""
