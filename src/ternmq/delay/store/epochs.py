"""A delay server's two logs as one member of its group: epochs, cuts, what may not be cut.

The same rules as a broker's (`storage.store`, decision 0011): an epoch is on disk before its first
record, a master's table before its bytes, a cut is an intent that a start finishes. Since nothing
is derived from what is not safe, a cut concerns nothing but both logs. Blocks.
"""

from ternmq.core.clock import Clock
from ternmq.core.errors import DiskFailed, DiskFull, Diverged, TernError
from ternmq.core.log import get_logger
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.store.journal import Deciding, Journal
from ternmq.delay.store.wal import Wal
from ternmq.storage.log.epoch_history import EpochHistory
from ternmq.storage.log.leader_epochs import Starts

log = get_logger()


class DelayEpochs:
    """Who wrote which part of the message log and of the journal."""

    def __init__(self, history: EpochHistory, wal: Wal, decisions: Journal) -> None:
        self._history = history
        self._source = wal.source
        self._messages = wal.messages
        self._decisions = decisions
        history.cut_done()  # Both logs were opened, which finished it.

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        return self._history.tables()

    def begin(self, epoch: int, *, hour_ms: int, derived_to: int, clock: Clock) -> None:
        """Lead under this epoch; the journal gets a first record with the length of an hour."""
        messages, decisions = self._messages, self._decisions
        self._cut_unfounded(derived_to)
        self._history.begin(epoch, messages.end, decisions.end)
        messages.epoch = epoch
        begun = Decision(
            kind=DecisionKind.BEGUN, at_ms=clock.now_ms(), value=hour_ms, first_sequence=epoch
        )
        staged = decisions.stage([Deciding(0, begun)], scheduled=messages.end, sync=True)
        try:
            decisions.write(staged)
        except TernError:
            decisions.abandon(staged)
            raise
        decisions.commit(staged, safe=False)

    def _cut_unfounded(self, at: int) -> None:
        """Decisions about messages that this member never got, where it was made to lead without
        them (`--accept-loss`)."""
        end = self._decisions.end
        while at < end:
            for noted in self._decisions.records(at, end):
                if noted.scheduled > self._messages.end:
                    log.error("decisions about lost messages are cut off", offset=noted.offset)
                    self._cut(self._messages.end, noted.offset)
                    return
                at = noted.end

    def adopt(self, tables: dict[int, Starts]) -> None:
        """Follow the master that has these tables."""
        logs = (self._messages, self._decisions)
        self._history.adopt(tables, empty=all(each.end == each.start_offset for each in logs))

    def truncate(self, message_to: int, decision_to: int) -> None:
        """Cut both logs off here. Raises `Diverged` where that would touch what is safe."""
        messages, decisions = self._messages, self._decisions
        safe = messages.safe_offset, decisions.safe_offset
        if message_to < safe[0] or decision_to < safe[1]:
            raise Diverged(
                f"the master's history ends at {message_to} (messages) and {decision_to} "
                f"(decisions); {safe[0]} and {safe[1]} were acknowledged here, so it lacks some of "
                "it. Nothing is deleted. Promote a member that has it, or move this directory "
                "aside",
                message_to=message_to,
                decision_to=decision_to,
                message_safe=safe[0],
                decision_safe=safe[1],
            )
        if message_to >= messages.end and decision_to >= decisions.end:
            messages.cut(messages.end)
            decisions.cut(decisions.end)
            return
        log.warning(
            "the logs are cut where the master's history differs",
            message_from=messages.end,
            message_to=message_to,
            decision_from=decisions.end,
            decision_to=decision_to,
        )
        self._cut(min(message_to, messages.end), min(decision_to, decisions.end))

    def _cut(self, message_to: int, decision_to: int) -> None:
        try:
            self._history.intend_cut(message_to, decision_to)
            self._messages.cut(message_to)
            self._decisions.cut(decision_to)
            self._history.cut_done()
        except (DiskFull, DiskFailed) as error:
            # The intent may be on disk: what is written from here on would be cut off with it.
            self._source.fail("a cut was not finished", error)
            self._decisions.fail("a cut was not finished", error)
            raise
