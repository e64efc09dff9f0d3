"""SETTLE and EXTEND: rows of detached leases, from whoever has their keys.

A detached lease belongs to no connection: it was handed to a gateway that keeps nothing, and what
became of its rows is told over any connection, by anybody who may consume the group and has the key
that came with the rows. Rows that the lease does not hold any more are late: they never count, and
the answer names them. It comes when every decision in it is safe, as an ACK's.
"""

import asyncio
from collections.abc import Sequence

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.large_acks import SLICE
from ternmq.broker.acks.settle import DeadRows, check_outcomes, group_of, may_settle
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lease import detached_ms
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import OverLimit
from ternmq.core.range_set import RangeSet
from ternmq.discovery.hidden_topics import lane_topic
from ternmq.rpc.peer import Peer
from ternmq.wire.messages.pull import Acked, Done, Extend, LeaseKey, Settle

ROWS_MAX = 10_000
"""Parts of leases that one request names."""


class DetachedLeases:
    """The SETTLE and EXTEND commands."""

    def __init__(self, groups: ConsumerGroups, topics: TopicNames, ack_handler: AckHandler) -> None:
        self._groups = groups
        self._topics = topics
        self._ack_handler = ack_handler

    async def settle(self, peer: Peer, request: Settle) -> Acked:
        """A slice at a time: the loop is not one caller's."""
        _check_size(len(request.done), len(request.keys))
        check_outcomes(request.done)
        groups = self._lanes(peer, request.topic, request.group)
        keys = _by_lease(request.keys)
        settled = late = 0
        late_rows: list[tuple[int, int, int]] = []
        moving: list[DeadRows] = []
        for at in range(0, len(request.done), SLICE):
            part = request.done[at : at + SLICE]
            applied = self._ack_handler.apply_by_key(groups, part, keys)
            settled += applied.settled
            late += applied.late
            late_rows += applied.late_rows
            moving += applied.moving
            await asyncio.sleep(0)
        if moving:
            await self._ack_handler.move(moving)
        return Acked(settled=settled, late=late, late_rows=late_rows)

    async def extend(self, peer: Peer, request: Extend) -> Acked:
        """From now on for so long, each of them; what is late stays so."""
        _check_size(len(request.rows), len(request.keys))
        now = self._groups.now()
        kept_ms = detached_ms(now, request.lease_ms)
        check_outcomes([Done(lease=lease, first=a, end=b) for lease, a, b in request.rows])
        groups = self._lanes(peer, request.topic, request.group)
        keys = _by_lease(request.keys)
        extended = 0
        late_rows: list[tuple[int, int, int]] = []
        for lease, first, end in request.rows:
            group = group_of(groups, lease)
            if group is None or group.deleted or not may_settle(group, lease, keys):
                late_rows.append((lease, first, end))
                continue
            result = group.lane.extend(lease, first, end, now=now, kept_ms=kept_ms)
            self._groups.write(group, result.changes)
            self._groups.wake(group, now + kept_ms)
            extended += result.settled
            if result.late:
                kept = RangeSet((a, b) for each in result.changes for a, b, _ in each.ranges)
                late_rows += [(lease, a, b) for a, b in kept.gaps(first, end)]
        late = sum(end - first for _, first, end in late_rows)
        return Acked(settled=extended, late=late, late_rows=late_rows)

    def _lanes(self, peer: Peer, topic_name: str, name: str) -> Sequence[ConsumerGroup]:
        """The group on the topic, and beside it its private lane."""
        topic = self._topics.get(topic_name)
        self._topics.check_app(topic, peer)
        found = [self._groups.get(topic.id, topic.name, name)]
        lane = self._topics.find(lane_topic(topic.id, name))
        private = None if lane is None else self._groups.find(lane.id, name)
        return found if private is None else [*found, private]


def _by_lease(keys: Sequence[LeaseKey]) -> dict[int, int]:
    return {each.lease: each.key for each in keys if each.key >= 0}


def _check_size(rows: int, keys: int) -> None:
    if max(rows, keys) > ROWS_MAX:
        raise OverLimit(f"{rows} parts of {keys} leases at once; at most {ROWS_MAX}: in parts")
