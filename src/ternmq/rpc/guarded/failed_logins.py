"""Who fails to log in too often waits: so many failures a minute from one address.

Counted by address and, more strictly, by address and user: nobody can lock somebody else out from
elsewhere, and nobody can try many passwords. One who has IPv6 has as many addresses as it likes,
so all of a /64 are one. Bounded: of addresses beyond `SOURCES_MAX` the oldest
are forgotten. Pure; the clock is handed in.
"""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address

from ternmq.core.errors import OverLimit

WINDOW_S = 60.0
OF_ADDRESS_MAX = 600
OF_USER_MAX = 10
SOURCES_MAX = 10_000


class FailedLogins:
    """Failed logins at one server."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self.total = 0

    def check(self, address: str, user: str) -> None:
        """Raises `OverLimit` for who has failed too often."""
        address = place_of(address)
        for key, most in (((address, user), OF_USER_MAX), ((address, ""), OF_ADDRESS_MAX)):
            began, count = self._counts.get(key, (0.0, 0))
            left = began + WINDOW_S - self._now()
            if count >= most and left > 0:
                raise OverLimit(
                    f"{count} logins from {address} failed within a minute; wait {left:.0f} s",
                    wait_ms=int(left * 1000) + 1,
                )

    def note(self, address: str, user: str) -> None:
        """One more."""
        address = place_of(address)
        self.total += 1
        now = self._now()
        for key in ((address, user), (address, "")):
            began, count = self._counts.pop(key, (now, 0))
            if now - began > WINDOW_S:
                began, count = now, 0
            self._counts[key] = began, count + 1
        while len(self._counts) > SOURCES_MAX:
            self._counts.popitem(last=False)


def place_of(address: str) -> str:
    """Who comes from there is one and the same, as far as we can tell."""
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    if found.is_link_local or found.is_loopback:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{IPv6Address(int(found) >> 64 << 64)}/64"
