"""How much a user may have of a server, and how much it has now; pure, moments are handed in.

A quota is stored with its user; what it does not say is said by that of `*`, the default. A use is
what one server counts of one user, of all its connections together. Rates are token buckets, as
limits of topics are; the time that its requests have the loop is one too, in microseconds. Servers
of the cluster have no user, and so no quota. Nothing is counted per message.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import asdict, replace

from ternmq.core.errors import BadRequest, OverLimit
from ternmq.security.access.delayed_rows import DelayedRows
from ternmq.security.access.token_bucket import Gate, TokenBucket, with_rate
from ternmq.wire.messages.limits import Quota

DEFAULT = "*"
"""Whose quota is everybody's who has no other."""
AS_DEFAULT = -1
"""Given for a value: what was said of this user does not count any more."""
LOOP_PERCENT_MAX = 100
VALUE_MAX = 2**50
_MICROSECONDS = 10_000
"""Of a second, for each per cent."""


def check_quota(values: Mapping[str, int]) -> Quota:
    """What a person typed; raises `BadRequest`."""
    names = set(Quota.__struct_fields__)
    unknown = sorted(set(values) - names)
    if unknown:
        raise BadRequest(f"no quota {unknown[0]!r}; there are {', '.join(sorted(names))}")
    for name, value in values.items():
        most = LOOP_PERCENT_MAX if name == "loop_percent" else VALUE_MAX
        if not AS_DEFAULT <= value <= most:
            raise BadRequest(
                f"{name} is {value}; it is 1 to {most}, 0 for no limit, or {AS_DEFAULT} for what "
                f"the default ({DEFAULT!r}) says"
            )
    return Quota(**values)


def changed(held: Quota, wanted: Quota) -> Quota:
    """With what is wanted in the place of what was."""
    given = {name: value for name, value in asdict(wanted).items() if value is not None}
    check_quota(given)
    return replace(
        held, **{name: None if value == AS_DEFAULT else value for name, value in given.items()}
    )


def effective(own: Quota, default: Quota) -> Quota:
    """What counts for a user; 0 is no limit."""
    others = asdict(default)
    return Quota(
        **{
            name: (others[name] or 0) if value is None else value
            for name, value in asdict(own).items()
        }
    )


class Stoppable(Protocol):
    """A connection that is not read from while its user has too much on its way."""

    def go_on_within_quota(self) -> None: ...


class UserUse:
    """What one user has of one server."""

    __slots__ = (
        "_connects",
        "_loop",
        "_now",
        "connections",
        "consuming",
        "delayed",
        "held",
        "name",
        "quota",
        "sending",
        "stopped",
        "waiting",
    )

    def __init__(self, name: str, quota: Quota, now: Callable[[], float]) -> None:
        self.name = name
        self._now = now
        self.connections = 0
        self.waiting = 0
        """Requests that are not answered."""
        self.held = 0
        """Bytes that were accepted and not answered."""
        self.stopped: dict[Stoppable, None] = {}
        """Connections that wait for `held` to fall."""
        self.sending: Gate | None = None
        self.consuming: Gate | None = None
        """None: without a limit."""
        self.delayed: DelayedRows | None = None
        """Counted by a delay server where there is such a quota."""
        self._connects: TokenBucket | None = None
        self._loop: TokenBucket | None = None
        self.quota = Quota()
        self.change(quota)

    def change(self, quota: Quota) -> None:
        """Other values from now on; buckets keep their debts."""
        if quota == self.quota:
            return
        now = self._now()
        self.sending = _gate(self.sending, quota.rate, quota.bytes_rate, now)
        self.consuming = _gate(self.consuming, quota.consume_rate, quota.consume_bytes_rate, now)
        self._connects = with_rate(self._connects, quota.connects_rate or 0, now)
        self._loop = with_rate(self._loop, (quota.loop_percent or 0) * _MICROSECONDS, now)
        self.quota = quota

    def connect(self, *, reserved: bool) -> None:
        """One more connection; raises `OverLimit`. `reserved`: the first one of who may grant is
        let in whatever the quota says, or nobody could change it."""
        there = self.connections
        if not (reserved and not there):
            most = self.quota.connections_max
            if most and there >= most:
                raise self._over(f"has its {most} connections here", "connections N")
            wait_s = 0.0 if self._connects is None else self._connects.wait_s(self._now())
            if wait_s > 0:
                what = f"connects more than {self.quota.connects_rate} times a second"
                raise self._over(what, "connects N/s", wait_s)
        if self._connects is not None:
            self._connects.take(1)
        self.connections += 1

    def ask(self) -> None:
        """One more request; raises `OverLimit` if it may not be."""
        self.waiting += 1
        most = self.quota.waiting_max
        if most and self.waiting > most:
            raise self._over(f"has {most} requests that are not answered", "waiting N", 0.1)

    def hold(self, size: int) -> bool:
        """More bytes on their way; is that too much?"""
        self.held += size
        most = self.quota.in_flight_size_max
        return bool(most) and self.held > (most or 0)

    def release(self, size: int) -> list[Stoppable]:
        """Bytes were answered; who may be read from again."""
        self.held -= size
        most = self.quota.in_flight_size_max or 0
        if not self.stopped or (most and self.held > most // 2):
            return []
        stopped, self.stopped = list(self.stopped), {}
        return stopped

    def spend(self, seconds: float) -> float:
        """How long a user rests who had the loop for so long."""
        if self._loop is None:
            return 0.0
        self._loop.take(int(seconds * 1_000_000))
        return self._loop.wait_s(self._now())

    def check_sending(self, rows: int, size: int) -> None:
        """Count a batch where there are no other limits; raises `OverLimit`."""
        if self.sending is None:
            return
        wait_s = self.sending_wait_s()
        if wait_s > 0:
            raise self.too_fast(wait_s)
        self.sending.take(rows, size)

    def sending_wait_s(self) -> float:
        return 0.0 if self.sending is None else self.sending.wait_s(self._now())

    def too_fast(self, wait_s: float) -> OverLimit:
        """Of who sends more a second than it may."""
        assert self.sending is not None
        wait_s = self.sending.refuse(wait_s, self._now())
        rate, size = self.quota.rate, self.quota.bytes_rate
        most = [f"{rate} messages"] * bool(rate) + [f"{size} bytes"] * bool(size)
        return self._over(f"may send {' and '.join(most)} a second", "rate N/s", wait_s)

    def check_made(self, what: str, there: int, most: int | None) -> None:
        """May it make one more of what stays? Raises `OverLimit`."""
        if most and there >= most:
            raise self._over(f"has its {most} {what}", f"{what} N")

    def delay(self, due_ms: Sequence[int], now_ms: int) -> None:
        """More messages for later; raises `OverLimit` where it has too many."""
        most = self.quota.delayed_max
        if not most:
            self.delayed = None
            return
        if self.delayed is None:
            self.delayed = DelayedRows()
        self.delayed.pass_to(now_ms)
        if self.delayed.there + len(due_ms) > most:
            there = self.delayed.there
            raise self._over(f"has {there} of its {most} messages for later", "delayed N")
        self.delayed.add(due_ms)

    def _over(self, what: str, option: str, wait_s: float = 0.0) -> OverLimit:
        details = {"wait_ms": int(wait_s * 1000) + 1} if wait_s else {}
        return OverLimit(
            f"{self.name!r} {what}; that is its quota: tern quota set {self.name} --{option}",
            **details,
        )


def _gate(gate: Gate | None, rate: int | None, size: int | None, now: float) -> Gate | None:
    if not rate and not size:
        return None
    gate = gate or Gate()
    gate.change(rate or 0, size or 0, now)
    return gate
