"""What a delay server says about itself, leading or following: STATUS, and figures for Prometheus.

Worked out when asked for. Never changes anything, and reads nothing but memory and the free space
of a disk.
"""

from ternmq.delay.operations.prometheus import delay_figures
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.ticker import ClockWatch
from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.status_facts import StatusFacts
from ternmq.rpc.prometheus import server_figures
from ternmq.storage.messages.message_log import log_figures
from ternmq.wire.messages.stats import Status


def facts_of(context: MemberContext, store: DelayStore) -> StatusFacts:
    """What the status of a leader and that of a replica have in common."""
    return StatusFacts(
        role="delay",
        place=context.place,
        clock=context.clock,
        listener=context.listener,
        member=context.me,
        messages=store.messages,
        started_at_ms=context.clock.now_ms(),
    )


class DelayLeaderStatus:
    """The status of a delay server that leads."""

    def __init__(
        self,
        context: MemberContext,
        engine: Engine,
        gate: CommitGate,
        *,
        epoch: int,
        watch: ClockWatch,
        lateness: Histogram,
    ) -> None:
        self._common = facts_of(context, engine.store)
        self._context = context
        self._engine = engine
        self._gate = gate
        self._epoch = epoch
        self._watch = watch
        self._lateness = lateness

    def status(self) -> Status:
        store = self._engine.store
        free, size = store.disk.free(store.paths.wal)
        return self._common.status(
            self._state(free, size),
            (free, size),
            clock_jumps=self._watch.jumps,
            dispatching=self._engine.dispatching(),
            epoch=self._epoch,
        )

    def _state(self, free: int, size: int) -> str:
        store = self._engine.store
        failed = store.failed
        if failed is not None:
            return failed.message
        if free < store.messages.reserved(size):
            return f"disk almost full: {free} bytes free, messages are refused"
        if self._gate.lacks:
            return self._gate.lacks
        if self._gate.refusal is not None:
            return f"read-only: {self._gate.refusal.message}"
        return store.report.damage or "ok"

    async def scrape(self, out: Samples) -> None:
        """Everything that Prometheus is shown of this server."""
        status = self.status()
        server_figures(out, status, self._context.listener)
        log_figures(out, status.role, self._engine.store.messages)
        delay_figures(out, self._engine, self._lateness, self._watch.jumps)


class DelayReplicaStatus:
    """The status of a delay server that follows."""

    def __init__(self, context: MemberContext, store: DelayStore) -> None:
        self._common = facts_of(context, store)
        self._context = context

    def status(self, trouble: str, lag: int) -> Status:
        """`trouble`: why it does not follow at present; `lag`: see `Status`."""
        return self._common.status(
            f"replica: {trouble}" if trouble else "ok",
            self._context.disk.free(self._context.place.data_dir),
            epoch=self._context.member.accepted_epoch,
            lag=lag,
        )
