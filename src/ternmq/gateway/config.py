"""The settings of a gateway, checked before anything starts.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`). Never reads
a file or the environment: the command line hands everything in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check
from ternmq.core.units import DAY_MS
from ternmq.rpc.address import is_loopback, join_address
from ternmq.security.tls.certificate_files import CertificateFiles

DELAY_MS_MAX = 731 * DAY_MS
POLL_MS = 10_000
PORT = 8081
"""What RocketMQ's own proxy listens on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where it listens, which cluster it serves, and what clients are told."""

    url: Annotated[str, about("the cluster that it serves")]
    host: Annotated[str, about("the address on which it listens")] = "127.0.0.1"
    port: Annotated[int, about("the port on which it listens", 0, 65_535)] = PORT
    ordered_groups: Annotated[
        tuple[str, ...], about("patterns (`*`, `?`): new groups named so are ordered")
    ] = ()
    """What a group has been set to holds."""
    start: Annotated[Literal["earliest", "latest"], about("where new groups begin")] = "earliest"
    delay_ms_max: Annotated[
        int, about("how far ahead a message may be delayed", 1, DELAY_MS_MAX)
    ] = DELAY_MS_MAX
    poll_ms: Annotated[
        int, about("how long push consumers are told to wait for messages", 100, 60_000)
    ] = POLL_MS
    access_keys: Annotated[
        bool, about("clients sign their calls, each is answered as the user who signed it")
    ] = False
    """Else all come as the gateway's own user."""
    topic_aliases: Annotated[
        Mapping[str, str], about("names of topics here, by those of RocketMQ clients")
    ] = field(default_factory=dict)
    group_aliases: Annotated[
        Mapping[str, str], about("names of groups here, by those of RocketMQ clients")
    ] = field(default_factory=dict)
    certificate_file: Annotated[
        str, about("certificate (PEM) for clients that speak TLS; empty: made at every start")
    ] = ""
    key_file: Annotated[str, about("its private key (PEM)")] = ""

    def __post_init__(self) -> None:
        check(self)
        _ = self.certificate_files  # Raises where one of the two is missing.
        if not is_loopback(self.host):
            raise BadConfig(
                f"host is {self.host!r}: calls from elsewhere would come in unproved and in the "
                "clear. The gateway listens on loopback only: use 127.0.0.1"
            )

    @property
    def certificate_files(self) -> CertificateFiles | None:
        """None: none was given."""
        if not (self.certificate_file or self.key_file):
            return None
        return CertificateFiles(
            certificate=Path(self.certificate_file) if self.certificate_file else None,
            key=Path(self.key_file) if self.key_file else None,
        )

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)

    def makes_ordered(self, group: str) -> bool:
        """Is a new group of this name ordered?"""
        return any(fnmatchcase(group, pattern) for pattern in self.ordered_groups)
