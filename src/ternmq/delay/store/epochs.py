"""A delay server's two logs as one member of its group: epochs, cuts, what may not be cut.

The same rules as a broker's (`storage.store`, decision 0011): an epoch is on disk before its first
record, a master's table before its bytes, a cut is an intent that a start finishes. Since nothing
is derived from what is not safe, a cut concerns nothing but both logs. Blocks.
"""

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.store.journal import Deciding, Journal
from ternmq.delay.store.wal import Wal
from ternmq.storage.log.epoch_history import EpochHistory, LogPair
from ternmq.storage.log.leader_epochs import Starts

log = get_logger()


class DelayEpochs:
    """Who wrote which part of the message log and of the journal."""

    def __init__(self, history: EpochHistory, wal: Wal, decisions: Journal) -> None:
        self._history = history
        self._messages = wal.messages
        self._decisions = decisions
        self._logs = LogPair(wal.messages, decisions, name="decisions", key="decision")
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
                    self._history.cut(self._logs, self._messages.end, noted.offset)
                    return
                at = noted.end

    def adopt(self, tables: dict[int, Starts]) -> None:
        """Follow the master that has these tables."""
        logs = (self._messages, self._decisions)
        self._history.adopt(tables, empty=all(each.end == each.start_offset for each in logs))

    def truncate(self, message_to: int, decision_to: int, *, waits: bool = True) -> None:
        """Cut both logs off here. Raises `Diverged` where that would touch what was acknowledged;
        `waits` as in `EpochHistory.truncate`."""
        message_to = min(message_to, self._messages.end)
        decision_to = min(decision_to, self._decisions.end)
        self._history.truncate(self._logs, message_to, decision_to, before=_nothing, waits=waits)


def _nothing() -> None:
    """No mark reaches beyond what is safe."""
