"""Who fails to log in too often waits: by account and address, by address, and by account.

Servers count failures by address, and all logins of a console come from its own: who guesses here
must run into these limits first, or others of that machine would wait for them at the servers. The
limit of one account over all addresses is below the servers' own for that reason; it lets somebody
keep a person out of the console for a minute at a time, and says so. Bounded: the oldest are
forgotten. Pure; the clock is handed in.
"""

from collections import OrderedDict
from collections.abc import Callable

from ternmq.core.errors import OverLimit
from ternmq.rpc.guarded.failed_logins import place_of

WINDOW_S = 60.0
HERE_MAX = 5
"""Of one account from one address."""
ACCOUNT_MAX = 8
"""Of one account; a server takes ten from one address."""
ADDRESS_MAX = 30
KEPT_MAX = 10_000

AttemptKey = tuple[str, str]


class LoginAttempts:
    """Failed logins at one console."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counts: OrderedDict[AttemptKey, tuple[float, int]] = OrderedDict()

    def check(self, address: str, user: str) -> None:
        """Raises `OverLimit` for who has to wait."""
        for key, most in _keys(address, user).items():
            began, count = self._counts.get(key, (0.0, 0))
            left = began + WINDOW_S - self._now()
            if count >= most and left > 0:
                raise OverLimit(
                    f"too many logins failed; wait {left:.0f} seconds", wait_ms=int(left * 1000) + 1
                )

    def failed(self, address: str, user: str) -> None:
        now = self._now()
        for key in _keys(address, user):
            began, count = self._counts.pop(key, (now, 0))
            if now - began > WINDOW_S:
                began, count = now, 0
            self._counts[key] = began, count + 1
        while len(self._counts) > KEPT_MAX:
            self._counts.popitem(last=False)


def _keys(address: str, user: str) -> dict[AttemptKey, int]:
    place = place_of(address)
    return {(place, user): HERE_MAX, ("", user): ACCOUNT_MAX, (place, ""): ADDRESS_MAX}
