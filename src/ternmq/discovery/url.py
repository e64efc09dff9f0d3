"""`tern://host:port[,host:port...]`: how people say where a cluster is. Never looks a name up."""

from ternmq.core.errors import BadRequest
from ternmq.discovery.url_user import split_user
from ternmq.rpc.address import join_address, split_address

SCHEME = "tern://"
META_PORT = 7700


def parse_url(url: str) -> list[str]:
    """The meta servers' addresses, in the order written, each once; the port may be left out."""
    url = split_user(url)[1]
    if not isinstance(url, str) or not url.startswith(SCHEME):
        raise BadRequest(f"{url!r} is not a TernMQ URL; write {SCHEME}127.0.0.1:{META_PORT}")
    rest = url.removeprefix(SCHEME).removesuffix("/")
    addresses: list[str] = []
    for part in rest.split(","):
        try:
            host, port = split_address(part, default_port=META_PORT)
        except BadRequest as error:
            raise BadRequest(f"{url!r} is not a TernMQ URL: {error.message}") from error
        if port == 0:
            raise BadRequest(f"{url!r} is not a TernMQ URL: port 0 cannot be connected to")
        address = join_address(host, port)
        if address not in addresses:
            addresses.append(address)
    return addresses


def format_url(addresses: list[str]) -> str:
    """The URL that names these meta servers."""
    return SCHEME + ",".join(addresses)
