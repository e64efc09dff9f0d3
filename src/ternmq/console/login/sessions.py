"""Sessions of people: on this side only; a browser has nothing but a random id.

A session is a user of the cluster and the token by which the cluster knows it. It is kept in memory
under a digest of its id, so who reads the memory's names has no id. It ends when nobody used it for
`idle_s`, when it is `lasts_s` old, when its token ends, by logging out, or when its user begins
more than `OF_USER_MAX`. A login makes a new id, always.
"""

import hashlib
import secrets
from dataclasses import dataclass

from ternmq.core.clock import Clock
from ternmq.core.errors import OverLimit
from ternmq.security.access.secret import Secret

SESSIONS_MAX = 1_000
OF_USER_MAX = 20
IDLE_S = 2 * 3_600.0
LASTS_S = 12 * 3_600.0
ID_SIZE = 32


@dataclass(slots=True, kw_only=True)
class LoggedIn:
    """What a login gave."""

    user: str
    token: Secret
    ends_at: float
    """When the token ends, by the clock of this process."""
    refresh: Secret | None = None
    """By which an issuer gives the next token."""
    ours: bool = True
    """The cluster made the token for this session, so it ends with it."""


@dataclass(slots=True, kw_only=True)
class ConsoleSession:
    """One person in one browser."""

    login: LoggedIn
    began_at: float
    used_at: float
    address: str = ""

    @property
    def user(self) -> str:
        return self.login.user


class ConsoleSessions:
    """All of one console."""

    def __init__(self, clock: Clock, *, idle_s: float = IDLE_S, lasts_s: float = LASTS_S) -> None:
        self._clock = clock
        self.idle_s = idle_s
        self.lasts_s = lasts_s
        self._open: dict[str, ConsoleSession] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, login: LoggedIn, address: str) -> tuple[str, list[ConsoleSession]]:
        """A new id, and sessions of the same user that had to go for it."""
        gone = self.expired()
        own = sorted(
            (session.used_at, key)
            for key, session in self._open.items()
            if session.user == login.user
        )
        gone += [self._open.pop(key) for _, key in own[: max(0, len(own) - OF_USER_MAX + 1)]]
        if len(self._open) >= SESSIONS_MAX:
            raise OverLimit(f"{SESSIONS_MAX} people are logged in here already; try again later")
        id, now = secrets.token_urlsafe(ID_SIZE), self._clock.monotonic()
        self._open[_key(id)] = ConsoleSession(
            login=login, began_at=now, used_at=now, address=address
        )
        return id, gone

    def find(self, id: str, *, used: bool = True) -> ConsoleSession | None:
        """The session of an id, if it is good; `used`: by its person, not by an open page."""
        session = self._open.get(_key(id))
        if session is None or self._over(session):
            return None
        if used:
            session.used_at = self._clock.monotonic()
        return session

    def end(self, id: str) -> ConsoleSession | None:
        return self._open.pop(_key(id), None)

    def expired(self) -> list[ConsoleSession]:
        """Sessions that are over, taken out."""
        over = [key for key, session in self._open.items() if self._over(session)]
        return [self._open.pop(key) for key in over]

    def end_all(self) -> list[ConsoleSession]:
        sessions, self._open = list(self._open.values()), {}
        return sessions

    def _over(self, session: ConsoleSession) -> bool:
        now = self._clock.monotonic()
        token_over = now >= session.login.ends_at and session.login.refresh is None
        return (
            token_over
            or now - session.used_at > self.idle_s
            or now - session.began_at > self.lasts_s
        )


def _key(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()
