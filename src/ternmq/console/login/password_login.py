"""A login by name and password: proven at the cluster by SCRAM, then forgotten.

The console compares no password and keeps none: a client logs in at the cluster with it, asks there
for a token that lasts as long as a session may, and is closed. From then on the session is that
token: it cannot make others or change the password, and ends when the session does.
"""

import asyncio

from ternmq.api.callers import with_user
from ternmq.client.client import connect
from ternmq.console.login.sessions import LoggedIn
from ternmq.core.clock import Clock
from ternmq.core.errors import BadName, OverLimit, Unauthorized, Unavailable
from ternmq.core.ids import check_name
from ternmq.security.access.secret import Secret

AT_ONCE = 2
"""A proof takes a while of a core, on purpose."""
WAITING_MAX = 20
LOGIN_S = 20.0
PASSWORD_SIZE_MAX = 1_024
WRONG = "This name or password is wrong."


class PasswordLogin:
    """Logs people in at one cluster."""

    def __init__(self, url: str, clock: Clock, *, lasts_s: float) -> None:
        self._url = url
        self._clock = clock
        self._lasts_s = lasts_s
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def log_in(self, user: str, password: str) -> LoggedIn:
        """Raises `Unauthorized` for who cannot prove it."""
        try:
            check_name("user", user)
        except BadName:
            raise Unauthorized(WRONG) from None
        if not 1 <= len(password) <= PASSWORD_SIZE_MAX:
            raise Unauthorized(WRONG)
        if self._waiting >= WAITING_MAX:
            raise OverLimit("too many people log in at this moment; try again")
        self._waiting += 1
        try:
            async with asyncio.timeout(LOGIN_S), self._turn:
                return await self._prove(user, Secret(password))
        except TimeoutError:
            raise Unavailable("the cluster did not answer in time") from None
        finally:
            self._waiting -= 1

    async def _prove(self, user: str, password: Secret) -> LoggedIn:
        async with connect(with_user(self._url, user), password=password) as mq:
            made = await mq.admin.create_token(user, expires=self._lasts_s)
        ends_at = self._clock.monotonic() + self._lasts_s
        return LoggedIn(user=user, token=Secret(made.token), ends_at=ends_at)
