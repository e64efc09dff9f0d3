"""SESSIONS, SENDERS and DISCONNECT: who is connected, who sends what, and hanging up on one.

A page of connections in the order in which they came, made in slices. What applications say of
themselves (name, host, process) is what HELLO said: a claim, unless security is on. Who is hung up
on is told why and may come back; what it holds waits for it as after any lost connection.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.consumer_group import ConsumerSession
from ternmq.broker.inspection.rows import page_size
from ternmq.broker.limits.slices import Slices
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.core.log import get_logger
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.wire.inspection.sessions import (
    Consuming,
    Disconnect,
    Disconnected,
    SenderCount,
    SenderCounts,
    SenderFind,
    SessionFind,
    SessionInfo,
    Sessions,
)

log = get_logger()

CONSUMING_MAX = 20
"""Topics that are named of one connection."""
PREFIX_MIN = 4
REASON_MAX = 200


class SessionInspection:
    """The commands about connections."""

    def __init__(
        self,
        peers: Callable[[], Iterable[Peer]],
        now: Callable[[], float],
        traffic: TrafficCounters,
        topics: TopicNames,
        consumers: Consumers,
    ) -> None:
        self._consumers = consumers
        self._peers = peers
        self._now = now
        self._traffic = traffic
        self._topics = topics
        self._slices = Slices()

    async def sessions(self, request: SessionFind) -> Sessions:
        limit = page_size(request.limit)
        peers = sorted(self._peers(), key=lambda peer: peer.number)
        wanted = (
            peer
            for peer in peers
            if peer.number > request.after
            and peer.hello is not None
            and request.app in ("", peer.hello.app)
        )
        chosen = list(islice(wanted, limit + 1))
        now = self._now()
        found = await self._slices.make(
            chosen[:limit], lambda peer: session_info(peer, self._consumers.of(peer), now)
        )
        return Sessions(
            sessions=found,
            total=len(peers),
            following=chosen[limit - 1].number if len(chosen) > limit else 0,
        )

    async def senders(self, request: SenderFind) -> SenderCounts:
        """At most as many as are counted apart."""
        only = self._topics.get(request.topic).id if request.topic else None
        counted = {topic_id for _, topic_id in self._traffic.senders} if only is None else set()
        names = {each.id: each.name for each in self._topics.all() if each.id in counted}
        return SenderCounts(
            senders=[
                SenderCount(
                    app=app,
                    topic=request.topic or names.get(topic_id, ""),
                    messages=rows,
                    bytes=size,
                )
                for (app, topic_id), (rows, size) in self._traffic.senders.items()
                if only in (None, topic_id)
            ]
        )

    async def disconnect(self, request: Disconnect) -> Disconnected:
        prefix = request.session.lower()
        if len(prefix) < PREFIX_MIN:
            raise BadRequest(f"name a session by at least {PREFIX_MIN} of its letters")
        found = [peer for peer in self._peers() if _session(peer).startswith(prefix)]
        sessions = {_session(peer) for peer in found}
        if len(sessions) > 1:
            raise BadRequest(
                f"{len(sessions)} clients have a session that begins with {prefix!r}; "
                "'tern clients' lists them"
            )
        for peer in found:
            why = f"disconnected by an operator: {request.reason[:REASON_MAX] or 'no reason given'}"
            log.warning("client disconnected by an operator", session=_session(peer))
            peer.close(Unavailable(why))
        return Disconnected(connections=len(found))


def _session(peer: Peer) -> str:
    """Servers of the cluster have none that could be meant."""
    return peer.hello.session.hex() if peer.hello is not None and peer.node is None else ""


def session_info(peer: Peer, consumers: list[ConsumerSession], now: float) -> SessionInfo:
    """A connection as people see it."""
    hello = peer.hello
    assert hello is not None
    role = "client" if not consumers else "consumer"
    return SessionInfo(
        number=peer.number,
        session=hello.session.hex(),
        app=hello.app,
        host=hello.host,
        pid=hello.pid,
        version=hello.version,
        address=join_address(*peer.address),
        role=role if peer.node is None else "server",
        user=peer.rights.name if peer.rights is not None else "",
        connected_s=round(now - peer.connected_at, 1),
        unanswered=peer.held,
        consuming=_consuming(consumers),
    )


def _consuming(consumers: list[ConsumerSession]) -> list[Consuming]:
    groups = [group for each in consumers for group in each.groups if not group.beside]
    return [Consuming(topic=each.topic, group=each.name) for each in groups[:CONSUMING_MAX]]
