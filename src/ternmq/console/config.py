"""The settings of a console: where it listens, what it shows, and how people come in.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`); what is said
here is which of them go together. Never reads a file but for its stamp.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ternmq.console.login.oidc_login import OidcClientConfig
from ternmq.console.login.sessions import IDLE_S, LASTS_S
from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check
from ternmq.discovery.url_user import split_user
from ternmq.rpc.address import is_loopback, join_address

MINUTE_S = 60
WEEK_S = 7 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """All settings of one console."""

    url: Annotated[
        str, about("the cluster; with a user, the console looks as that one and people log in")
    ]
    password_file: Annotated[str, about("of that user; empty: what the environment says")] = ""
    host: Annotated[str, about("the address on which it listens")] = "127.0.0.1"
    port: Annotated[int, about("the port on which it listens", 0, 65_535)] = 7780
    insecure: Annotated[
        bool, about("also listen where others could read along, or without logins")
    ] = False
    certificate_file: Annotated[str, about("certificate (PEM) that browsers are shown")] = ""
    key_file: Annotated[str, about("its private key (PEM)")] = ""
    public_url: Annotated[
        str, about("how browsers reach it through a proxy; empty: by host and port")
    ] = ""
    oidc: OidcClientConfig | None = None
    idle_s: Annotated[
        float, about("seconds after which a session ends that nobody uses", MINUTE_S, WEEK_S)
    ] = IDLE_S
    lasts_s: Annotated[float, about("seconds after which every session ends", MINUTE_S, WEEK_S)] = (
        LASTS_S
    )

    def __post_init__(self) -> None:
        check(self)
        if self.idle_s > self.lasts_s:
            raise BadConfig(
                f"a session cannot be idle for longer ({self.idle_s:g} s) than it lasts "
                f"({self.lasts_s:g} s)"
            )
        if bool(self.certificate_file) != bool(self.key_file):
            raise BadConfig("a certificate and its key come together: give both files, or none")
        if self.oidc is not None and not self.logs_in:
            raise BadConfig("an issuer is of use only where people log in: write tern://USER@HOST")
        if self.public_url and not self.public_url.startswith(("https://", "http://")):
            raise BadConfig(f"public_url is {self.public_url[:80]!r}; it begins with https://")
        if not self.exposed or self.insecure:
            return
        if not self.logs_in:
            raise BadConfig(
                f"host is {self.host!r}, and nobody logs in here (the cluster has no security, or "
                "the url no user): whoever reaches it may do everything, so it listens on loopback "
                "only. Use 127.0.0.1, and reach it from elsewhere by a tunnel (ssh -L "
                f"{self.port}:127.0.0.1:{self.port} HOST); or say --insecure"
            )
        raise BadConfig(
            f"host is {self.host!r}, and without TLS everybody on the way could read passwords: "
            "give --tls-certificate and --tls-key ('tern secure cert' makes them), or say "
            "--insecure behind a proxy that has TLS"
        )

    @property
    def logs_in(self) -> bool:
        return bool(split_user(self.url)[0])

    @property
    def tls(self) -> bool:
        return bool(self.certificate_file)

    @property
    def exposed(self) -> bool:
        """Reached from other machines without logins or without TLS."""
        return not is_loopback(self.host) and not (self.logs_in and self.tls)

    @property
    def origin(self) -> str:
        if self.public_url:
            return self.public_url.rstrip("/")
        return f"{'https' if self.tls else 'http'}://{join_address(self.host, self.port)}"

    def tls_stamps(self) -> list[tuple[int, int]]:
        """By which a file is known to be another one."""
        found: list[tuple[int, int]] = []
        for name in (self.certificate_file, self.key_file):
            try:
                stat = Path(name).stat()
            except OSError:
                continue
            found.append((stat.st_mtime_ns, stat.st_ino))
        return found
