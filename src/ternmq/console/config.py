"""Where the console listens, what it shows, and how people come in."""

from dataclasses import dataclass
from pathlib import Path

from ternmq.console.login.oidc_login import OidcClientConfig
from ternmq.console.login.sessions import IDLE_S, LASTS_S
from ternmq.core.errors import BadConfig
from ternmq.discovery.url_user import split_user
from ternmq.rpc.address import is_loopback, join_address


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """All settings of one console."""

    url: str
    """Of the cluster; with a user in it, the console looks as that user and people log in."""
    password_file: str = ""
    """Of that user; empty: what the environment says."""
    host: str = "127.0.0.1"
    port: int = 7780
    insecure: bool = False
    """Also listen where others could read along, or without logins."""
    certificate_file: str = ""
    key_file: str = ""
    public_url: str = ""
    """How browsers reach it, where a proxy stands before it; empty: by host and port."""
    oidc: OidcClientConfig | None = None
    idle_s: float = IDLE_S
    lasts_s: float = LASTS_S

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise BadConfig("a certificate and its key come together: give both files, or none")
        if self.oidc is not None and not self.logs_in:
            raise BadConfig("an issuer is of use only where people log in: write tern://USER@HOST")
        if not 60 <= self.idle_s <= self.lasts_s <= 7 * 86_400:
            raise BadConfig(
                "a session lasts a minute to seven days, and is idle for less than that"
            )
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
