"""CONFIRM: a producer waits until a group has acked its messages (D13).

A request waits at its group and is looked at again when the group settles rows, never by polling;
all that are ready in one turn of the loop share one record. An ack alone is progress and may be
lost in a crash. So before the producer is told, a CONFIRM decision that names the rows is made
safe; replaying it acks them. Rows that were settled otherwise are named with how.

Waiting requests are bounded per group, hold back nobody's other requests, and end with their time,
their group or the broker; whoever asks again after a restart finds the same answer.
"""

import asyncio
from functools import partial

from ternmq.broker.groups.consumer_group import ConsumerGroup, PendingConfirm
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.log.commit import Committer
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, GroupNotFound, OverLimit, TernError, Unavailable
from ternmq.core.range_set import RangeSet
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.storage.pull.record import RANGES_MAX, PullKind
from ternmq.wire.frame import Frame
from ternmq.wire.messages.publish import Confirm, Confirmed, SettledState
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack

_CONFIRM = int(Command.CONFIRM)
ASKED_MAX = 10_000  # Requests that wait at one group.
WAIT_MAX_MS = 30_000
PARTS_MAX = 10_000  # Ranges in one answer.

NOT_CONFIRMED = "what became of it could not be told: a bug of the broker, whose log says more"


class Confirmer:
    """The CONFIRM command."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        committer: Committer,
        stuck_requests: StuckRequests,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._moved: dict[int, ConsumerGroup] = {}
        self._stuck_requests = stuck_requests

    def confirm(self, peer: Peer, frame: Frame) -> None:
        """Answer when every row is settled, or when time is up."""
        request = unpack(frame.payload, Confirm)
        topic = self._topics.get(request.topic)
        self._topics.check_app(topic, peer)
        group = self._groups.get(topic.id, topic.name, request.group)
        first, end = request.first, request.end
        if not 0 <= first <= end <= group.lane.end:
            raise BadRequest(f"{topic.name!r} ends at {group.lane.end}; asked for {first}..{end}")
        pending = PendingConfirm(peer, frame.correlation, first, end)
        if request.wait_ms <= 0 or not _open(group, first, end):
            self._answer(group, [pending])
            return
        if len(group.pending_confirms) >= ASKED_MAX:
            self._let_go(group)
        group.pending_confirms[id(pending)] = pending
        wait_s = min(request.wait_ms, WAIT_MAX_MS) / 1000
        pending.wait(self._loop.call_later(wait_s, self._time_is_up, group, pending))

    def stop(self) -> None:
        """Nothing more comes from here."""
        for group in self._groups:
            for pending in self._take(group, list(group.pending_confirms.values())):
                error = Unavailable("the broker is stopping; connect again in a moment")
                pending.peer.fail(_CONFIRM, pending.correlation, error)

    # -- waking

    def settled(self, group: ConsumerGroup) -> None:
        """Rows of a group that a caller waits for may be settled: look at the end of this turn."""
        if not self._moved:
            self._loop.call_soon(self._look)
        self._moved[id(group)] = group

    def _look(self) -> None:
        moved, self._moved = self._moved, {}
        for group in moved.values():
            if group.deleted:
                error = GroupNotFound(f"group {group.name!r} of {group.topic!r} was deleted")
                for pending in self._take(group, list(group.pending_confirms.values())):
                    pending.peer.fail(_CONFIRM, pending.correlation, error)
                continue
            done = [a for a in group.pending_confirms.values() if not _open(group, a.first, a.end)]
            if done:
                self._answer(group, self._take(group, done))

    def _time_is_up(self, group: ConsumerGroup, pending: PendingConfirm) -> None:
        self._answer(group, self._take(group, [pending]))

    def _take(self, group: ConsumerGroup, some: list[PendingConfirm]) -> list[PendingConfirm]:
        for pending in some:
            del group.pending_confirms[id(pending)]
            if pending.timer is not None:
                pending.timer.cancel()
        return some

    def _let_go(self, group: ConsumerGroup) -> None:
        """Make room: those whose connections are gone wait for nothing."""
        self._take(
            group, [pending for pending in group.pending_confirms.values() if pending.peer.closed]
        )
        if len(group.pending_confirms) >= ASKED_MAX:
            raise OverLimit(f"{ASKED_MAX} confirmations of group {group.name!r} are waited for")

    # -- answering

    def _answer(self, group: ConsumerGroup, some: list[PendingConfirm]) -> None:
        """From a timer or the end of a turn, too: whoever waits is told in any case."""
        try:
            self._answer_now(group, some)
        except Exception as bug:
            BUGS.report(bug, command="CONFIRM")
            for pending in some:
                pending.peer.fail(_CONFIRM, pending.correlation, Unavailable(NOT_CONFIRMED))

    def _answer_now(self, group: ConsumerGroup, some: list[PendingConfirm]) -> None:
        """Tell what is known now; what is acked, once that is safe."""
        acked = RangeSet()
        answers: list[tuple[PendingConfirm, Confirmed | TernError]] = []
        for pending in some:
            answer, rows = look_up(group, pending.first, pending.end)
            if len(answer.open) + len(answer.refused) > PARTS_MAX:
                sorry = OverLimit("too scattered for one answer: ask about fewer messages at once")
                answers.append((pending, sorry))
                continue
            answers.append((pending, answer))
            for first, end in rows:
                acked.add(first, end)
        pieces = [(first, end, 0) for first, end in acked]
        records = [
            self._groups.to_record(
                group, LaneEvent(PullKind.CONFIRM, tuple(pieces[at : at + RANGES_MAX]))
            )
            for at in range(0, len(pieces), RANGES_MAX)
        ]
        if not records:
            _tell(answers, None)
            return
        safe = self._committer.decide(records)
        safe.add_done_callback(partial(_tell, answers))
        self._stuck_requests.watch(safe, partial(_give_up, answers))


def look_up(group: ConsumerGroup, first: int, end: int) -> tuple[Confirmed, list[tuple[int, int]]]:
    """What became of these rows; and which of them are acked."""
    lane = group.lane
    refused: list[tuple[int, int, SettledState]] = []
    if first < lane.start:  # Before the group's time, or before its last reset.
        refused.append((first, min(end, lane.start), "skipped"))
    low = max(first, lane.start)
    acked = RangeSet()
    for a, b in lane.done.overlap(low, end):
        acked.add(a, b)
        for settled in group.outcomes.within(a, b):
            refused.append(settled)
            acked.remove(settled[0], settled[1])
    return Confirmed(open=_open(group, low, end), refused=refused), list(acked)


def _open(group: ConsumerGroup, first: int, end: int) -> list[tuple[int, int]]:
    first = max(first, group.lane.start)
    return group.lane.done.gaps(first, end) if first < end else []


def _give_up(answers: list[tuple[PendingConfirm, Confirmed | TernError]], error: TernError) -> None:
    for pending, _ in answers:
        pending.peer.fail(_CONFIRM, pending.correlation, error)
    answers.clear()


def _tell(
    answers: list[tuple[PendingConfirm, Confirmed | TernError]], safe: "asyncio.Future[None] | None"
) -> None:
    error = safe.exception() if safe is not None and not safe.cancelled() else None
    for pending, answer in answers:
        if isinstance(error, TernError):
            pending.peer.fail(_CONFIRM, pending.correlation, error)
        elif isinstance(answer, TernError):
            pending.peer.fail(_CONFIRM, pending.correlation, answer)
        else:
            pending.peer.answer(_CONFIRM, pending.correlation, pack(answer))
