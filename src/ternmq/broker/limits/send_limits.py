"""Limits of sending, of topics, applications and users: asked once for each batch (J13).

Limits are settings of topics, an application's are those of a topic of our own, a user's is its
quota (`security.access.quota`); all are found in memory, so a change counts from the next batch on.
Either all gates let a batch pass and count it, or one turns it away and none counts it. Gates live
in memory: a restart fills every bucket.
"""

from collections.abc import Callable
from typing import Protocol

from ternmq.core.errors import OverLimit
from ternmq.discovery.hidden_topics import send_limit
from ternmq.rpc.peer import Peer
from ternmq.security.access.token_bucket import Gate
from ternmq.wire.messages.standings import Standing
from ternmq.wire.messages.topics import Topic

_APP_PREFIX = send_limit("")
GATES_MAX = 100_000
"""Topics and applications with a limit that are remembered; beyond, all begin anew."""


class Gates:
    """The gates of topics, each with the rates that its topic's settings say now."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._gates: dict[int, Gate] = {}

    def of(self, topic: Topic | None) -> Gate | None:
        """None where there is no limit."""
        if topic is None:
            return None
        settings = topic.settings
        if not settings.rate and not settings.bytes_rate:
            return None
        gate = self._gates.get(topic.id)
        if gate is None:
            if len(self._gates) >= GATES_MAX:
                self._gates.clear()
            gate = self._gates[topic.id] = Gate()
        gate.change(settings.rate, settings.bytes_rate, self.now())
        return gate


class Drainable(Protocol):
    """A member of a broker group, as far as producers are sent away from it."""

    @property
    def standing(self) -> Standing: ...


class SendLimits:
    """The send limits of topics and applications; PUBLISH asks for every batch."""

    def __init__(
        self,
        find: Callable[[str], Topic | None],
        now: Callable[[], float],
        member: Drainable,
    ) -> None:
        self._find = find
        self.member = member
        """Asked whether producers have to send to another broker group."""
        self._gates = Gates(now)

    def turn_away(self, topic: Topic, peer: Peer, rows: int, size: int) -> OverLimit | None:
        """Count a batch, or say why it may not pass now."""
        app = peer.hello.app if peer.hello else ""
        app_topic = self._find(_APP_PREFIX + app)
        by_topic, by_app = self._gates.of(topic), self._gates.of(app_topic)
        by_user = None if peer.use is None else peer.use.sending
        if by_topic is None and by_app is None and by_user is None:
            return None
        now = self._gates.now()
        for gate, limited in ((by_topic, topic), (by_app, app_topic)):
            wait_s = gate.wait_s(now) if gate is not None else 0.0
            if gate is not None and limited is not None and wait_s > 0:
                return _over(limited, gate.refuse(wait_s, now), app)
        if peer.use is not None and (wait_s := peer.use.sending_wait_s()) > 0:
            return peer.use.too_fast(wait_s)
        for gate in (by_topic, by_app, by_user):
            if gate is not None:
                gate.take(rows, size)
        return None


def _over(limited: Topic, wait_s: float, app: str) -> OverLimit:
    own = limited.name.startswith("%")
    who = f"application {app!r} may send" if own else f"topic {limited.name!r} takes"
    wait_ms = int(wait_s * 1000) + 1
    return OverLimit(
        f"{who} at most {rates_text(limited.settings.rate, limited.settings.bytes_rate)}; "
        f"there is room again in {wait_ms} ms",
        wait_ms=wait_ms,
    )


def rates_text(rate: int, bytes_rate: int) -> str:
    parts = [f"{rate} messages/s"] if rate else []
    parts += [f"{bytes_rate} bytes/s"] if bytes_rate else []
    return " and ".join(parts)
