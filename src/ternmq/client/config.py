"""What an application may set on `connect`, and the limits of each value.

`connect(url, app=..., **options)` collects its keywords into one frozen `ClientConfig`. Types and
limits stand with the fields and are checked by msgspec; the texts of refusals are ours. An unknown
or impossible value is refused before anything runs, with a text that names the nearest option.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin, get_type_hints

import msgspec

from ternmq.batch.layout import BODY_SIZE_MAX, ROWS_MAX, Encoding
from ternmq.client.codecs.codec import Codec, CodecName, find_codec
from ternmq.client.model.arguments import check_options
from ternmq.client.model.durations import Duration, seconds_of, typed
from ternmq.client.model.times import shown
from ternmq.core.errors import BadConfig, TernError
from ternmq.core.ids import check_name
from ternmq.core.units import KIB, MIB
from ternmq.security.access.secret import Secret
from ternmq.security.sealing.master_keys import MasterKey, find_master_keys

Compression = Literal["zstd", "lz4", "none"]
OnFull = Literal["wait", "raise"]
Choosing = Literal["round_robin", "random", "weighted"]
"""How a producer chooses among the servers that it could send to."""
DEFAULT_APP = "default"
OnError = Callable[[str, TernError], None]

DURATIONS = {
    "delivery_timeout": (0.01, 24 * 3600.0),
    "request_timeout": (0.01, 600.0),
    "resend_after": (0.01, 3600.0),
    "refresh_interval": (0.1, 30.0),
    "wait": (0.0, 24 * 3600.0),
}
"""The limits of what may be given in seconds or as a timedelta."""


def _from_to(low: int, high: int) -> msgspec.Meta:
    """Both ends allowed."""
    return msgspec.Meta(ge=low, le=high)


_ENCODINGS: dict[str, Encoding] = {
    "zstd": Encoding.ZSTD,
    "lz4": Encoding.LZ4,
    "none": Encoding.PLAIN,
}


class ConnectOptions(TypedDict, total=False):
    """The keywords of `connect`, for type checkers."""

    app: str
    codec: Codec | CodecName | None
    buffer_messages_max: int
    buffer_size_max: int
    body_size_max: int
    on_full: OnFull
    on_error: OnError | None
    choose: Choosing
    allow_duplicates: bool
    avoid_failing: bool
    tries_max: int | None
    tries_max_nowait: int | None
    delivery_timeout: Duration
    request_timeout: Duration
    resend_times: int
    resend_after: Duration
    compression: Compression
    batch_rows_max: int
    batch_size_max: int
    inflight_max: int
    spool: str | Path | None
    spool_size_max: int
    unsent: str | Path | None
    refresh_interval: Duration
    wait: Duration
    lazy: bool
    password: str | Secret | None
    password_file: str | Path | None
    token: str | Secret | Callable[[], str] | None
    token_file: str | Path | None
    tls_ca: str | Path
    tls_certificate: str | Path
    tls_key: str | Path
    keys: str | Mapping[str, str | MasterKey] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """All settings of one client, complete and checked."""

    app: str = DEFAULT_APP
    """Who sends and consumes; shown by the broker, checked by closed topics."""
    codec: Codec | CodecName | None = None
    """Turns objects into bodies and back: 'json', 'msgpack', an object with encode and decode."""
    buffer_messages_max: Annotated[int, _from_to(1, 100_000_000)] = 100_000
    """Messages accepted and not yet answered."""
    buffer_size_max: Annotated[int, _from_to(64 * KIB, 64 * 1024 * MIB)] = 64 * MIB
    """Bytes accepted and not yet answered."""
    body_size_max: Annotated[int, _from_to(1, BODY_SIZE_MAX)] = BODY_SIZE_MAX
    """Bytes of one body, before compression; over it the caller is told `TooLarge` at once."""
    on_full: OnFull = "wait"
    """Over one of these bounds: let the caller wait, or raise `BufferFull`."""
    on_error: OnError | None = None
    """Called with (topic, error) when a message of `send_nowait` was not stored."""
    choose: Choosing = "round_robin"
    """Which broker group gets the next batch; what has an order key goes where its slot lies."""
    allow_duplicates: bool = False
    """No answer: also send to another group, though the first may have stored it."""
    avoid_failing: bool = True
    """A server that failed gets nothing for a growing time, while there are others."""
    tries_max: Annotated[int, _from_to(1, 1000)] | None = None
    """How often a message is tried at most, on whatever servers; None: until its time is over."""
    tries_max_nowait: Annotated[int, _from_to(1, 1000)] | None = None
    """The same for one-way messages."""
    delivery_timeout: float = 60.0
    """Seconds from `send` until it gives up."""
    request_timeout: float = 5.0
    """Seconds without an answer until the same bytes are sent again."""
    resend_times: Annotated[int, _from_to(0, 1000)] = 3
    """One-way messages: how often they are sent again while nobody answers."""
    resend_after: float = 30.0
    """One-way messages: seconds without an answer until they are sent again, or given up."""
    compression: Compression = "zstd"
    batch_rows_max: Annotated[int, _from_to(1, ROWS_MAX)] = 4096
    batch_size_max: Annotated[int, _from_to(1, 3 * MIB)] = 1 * MIB
    """Bytes of bodies in one request, before compression; one larger body travels alone."""
    inflight_max: Annotated[int, _from_to(1, 256)] = 8
    """Requests of one topic under way at the same time."""
    spool: str | Path | None = None
    """A directory in which messages are kept from `send` until a broker has them."""
    spool_size_max: Annotated[int, _from_to(64 * KIB, 1024 * 1024 * MIB)] = 1024 * MIB
    """Bytes in the spool that no broker has taken yet."""
    unsent: str | Path | None = None
    """A file for one-way messages that no broker stored, for people: `tern unsent`. With a spool:
    for those that are refused for good."""
    refresh_interval: float = 10.0
    """Seconds after which the routes are fetched whole, though no meta server said that they
    changed."""
    wait: float = 0.0
    """Seconds that connecting waits for a meta server while none answers."""
    lazy: bool = False
    """Connecting waits for nobody: the servers are looked for in the background."""
    password: str | Secret | None = field(default=None, repr=False)
    """Of the user in the url (`tern://alice@host`), whose name `app` is then by default."""
    password_file: str | Path | None = None
    """A file that nobody else may read, whose first line is the password."""
    token: str | Secret | Callable[[], str] | None = field(default=None, repr=False)
    """In place of a password; a function is asked for the next one before a token ends."""
    token_file: str | Path | None = None
    """A file as `password_file`, read again for every connection and before a token ends."""
    tls_ca: str | Path = ""
    """Of a `terns://` url: the file with the authorities (PEM) that servers are checked by; empty:
    those of the system."""
    tls_certificate: str | Path = ""
    """The file with the certificate (PEM) that this client shows."""
    tls_key: str | Path = ""
    """And with its key, which only this user may read."""
    keys: str | Mapping[str, str | MasterKey] | None = field(default=None, repr=False)
    """Master keys of encrypted topics, by name: where each is ('file:PATH', 'env:VARIABLE'), or an
    object that asks a key service."""

    def __post_init__(self) -> None:
        check_name("application", self.app)
        if isinstance(self.password, str):
            object.__setattr__(self, "password", Secret(self.password))
        elif not (self.password is None or isinstance(self.password, Secret)):
            raise BadConfig("password is a text")  # Never shown, whatever it is.
        if isinstance(self.password, Secret) and not self.password.reveal():
            raise BadConfig("password is a text that is not empty; leave it out for no login")
        if isinstance(self.token, str):
            object.__setattr__(self, "token", Secret(self.token))
        elif not (self.token is None or isinstance(self.token, Secret) or callable(self.token)):
            raise BadConfig("token is a text, or a function that returns one")
        if isinstance(self.token, Secret) and not self.token.reveal():
            raise BadConfig("token is a text that is not empty; leave it out for no login")
        find_codec(self.codec)
        find_master_keys(self.keys, {})
        for name, kind in _plain_kinds().items():
            _check(name, kind, getattr(self, name))
        if self.on_error is not None and not callable(self.on_error):
            raise BadConfig(
                f"on_error is {shown(self.on_error)}; it is a function that takes (topic, error)"
            )
        for name, (low, high) in DURATIONS.items():  # A timedelta becomes seconds.
            seconds = seconds_of(name, getattr(self, name), low, high, BadConfig)
            object.__setattr__(self, name, seconds)
        unsent = self.unsent
        if unsent is not None and not (
            isinstance(unsent, str | Path) and Path(unsent).parent.is_dir()
        ):
            raise BadConfig(f"unsent is {unsent!r}; it is the path of a file to be")
        if self.spool is not None and not (isinstance(self.spool, str | Path) and str(self.spool)):
            raise BadConfig(f"spool is {self.spool!r}; it is the path of a directory")
        files = [
            name for name in ("password_file", "token_file") if getattr(self, name) is not None
        ]
        for name in (*files, "tls_ca", "tls_certificate", "tls_key"):
            if not isinstance(getattr(self, name), str | Path):
                raise BadConfig(f"{name} is {shown(getattr(self, name))}; it is the path of a file")

    @property
    def tls_files(self) -> dict[str, str]:
        """As a url has them."""
        named = {"ca": self.tls_ca, "cert": self.tls_certificate, "key": self.tls_key}
        return {name: str(path) for name, path in named.items()}

    @property
    def encoding(self) -> Encoding:
        return _ENCODINGS[self.compression]


@cache
def _plain_kinds() -> dict[str, Any]:
    """The types of the settings that msgspec can check: truth, words, and numbers with limits."""
    hints = get_type_hints(ClientConfig, include_extras=True)
    return {
        name: kind
        for name, kind in hints.items()
        if kind is bool or get_origin(kind) is Literal or _limits(kind) is not None
    }


def _limits(kind: Any) -> msgspec.Meta | None:
    """Of a number, or of one that may be left out."""
    for each in (kind, *get_args(kind)):
        for meta in getattr(each, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta):
                return meta
    return None


def _check(name: str, kind: Any, value: object) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise BadConfig(f"{name} is {_refusal(kind, value)}") from None


def _refusal(kind: Any, value: object) -> str:
    """What was given, and what it can be."""
    limits = _limits(kind)
    if limits is None:
        words = ", ".join(map(repr, get_args(kind)))
        return f"{shown(value)}; it {f'can be {words}' if words else 'is True or False'}"
    between = f"{limits.ge} to {limits.le}"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{typed(value)}; it is a whole number, {between}"
    return f"{shown(value)}; it can be {between}"


def make_config(options: Mapping[str, Any]) -> ClientConfig:
    """Check the keywords of `connect`."""
    known = [each.name for each in fields(ClientConfig)]
    check_options("connect", options, known, BadConfig)
    return ClientConfig(**options)
