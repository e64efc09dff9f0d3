"""The workers that dispatch due rows: collect a batch, sync the intent, send it to a broker.

A worker takes rows of one fragment, makes a batch of them (on a thread), has the intent synced, and
hands the batch to the sender of a broker group, which sends it until answered; the worker goes on
at once. While no group takes messages no intents are made, so the rows stay free for the group that
comes back first. Intents of an earlier life go first, each to its own group only. A refusal
releases the rows at once, and their topic is paused (`paused_topics`), unless it is the group that
cannot store. Rows of a topic that was deleted are cancelled instead (`deleted_topics`).
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ternmq.batch.layout import TOPIC_ID, TOPIC_ID_AT
from ternmq.core.clock import Clock
from ternmq.core.errors import Moved, TernError, TopicNotFound
from ternmq.core.ids import ProducerId
from ternmq.core.log import get_logger
from ternmq.delay.dispatching.broker_senders import OF_THE_GROUP, BrokerSender, BrokerSenders
from ternmq.delay.dispatching.collect import Destination, collect
from ternmq.delay.dispatching.decide import Decisions
from ternmq.delay.dispatching.deleted_topics import DeletedTopics, Fate
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.timing.dispatch_work import DispatchWork
from ternmq.delay.timing.engine import Engine
from ternmq.metrics.histogram import LATENESS_BOUNDS_S, Histogram

log = get_logger()

WAIT_S = 1.0


class Dispatcher:
    """The workers that collect due rows, decide and send them."""

    def __init__(
        self,
        engine: Engine,
        decisions: Decisions,
        senders: BrokerSenders,
        gone: DeletedTopics,
        *,
        clock: Clock,
        workers: int,
    ) -> None:
        self._gone = gone
        self._engine = engine
        self._decisions = decisions
        self._senders = senders
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="tern-delay-worker")
        self._work = asyncio.Event()
        self.workers = workers
        self.dispatched = 0
        self.lateness = Histogram(LATENESS_BOUNDS_S)
        self._closed = False
        self._wanted: str | None = None
        """The group that rows with order keys wait for."""

    def wake(self) -> None:
        """Rows are ready."""
        self._work.set()

    async def run(self) -> None:
        """One worker."""
        while True:
            sender = self._senders.pick(self._wanted)
            if self._engine.near.unresolved:
                await self._repeat(*self._engine.near.unresolved.pop())
                continue
            work = self._engine.next_work(self._clock.now_ms()) if sender is not None else None
            if work is None or sender is None:
                await self._wait()
                continue
            try:
                await self._dispatch(work, sender)
            finally:
                self._engine.ready.done(work.fragment)
                self._work.set()

    async def _wait(self) -> None:
        self._work.clear()
        try:
            async with asyncio.timeout(WAIT_S if self._engine.ready.rows == 0 else 0.05):
                await self._work.wait()
        except TimeoutError:
            pass

    async def _dispatch(self, work: DispatchWork, sender: BrokerSender) -> None:
        engine = self._engine
        fate = await self._gone.fate(work.topic_id)
        if fate is Fate.GONE:
            await self._drop(work)
            return
        if fate is Fate.UNKNOWN:
            engine.paused.refused(work.topic_id, self._clock.monotonic())
            engine.give_back(work, work.rows, self._clock.now_ms())
            return
        producer, first = sender.producer, sender.numbers(len(work.rows))
        destination = Destination(sender.group, self._senders.slot_owner)
        gather = partial(
            collect,
            engine.store,
            engine.places(work.hour, work.rows),
            producer,
            first,
            destination=destination if self._senders.assigned else None,
        )
        found = await self._loop.run_in_executor(self._pool, gather)
        self._wanted = found.wanted
        if len(found.elsewhere):
            # The next ones for the group they want, if it takes anything; else with the next tick.
            ready = self._senders.takes(found.wanted)
            now_ms = self._clock.now_ms()
            put_back = engine.leave if ready else partial(engine.give_back, now_ms=now_ms)
            put_back(work, found.elsewhere)
        if len(found.unreadable):
            engine.set_aside(work, found.unreadable)
        if len(found.left):
            engine.leave(work, found.left)
        if found.batch is None:
            return
        if fate is Fate.LIVES:  # Else only its name is left.
            TOPIC_ID.pack_into(found.batch, TOPIC_ID_AT, work.topic_id)
        intent = Decision(
            kind=DecisionKind.INTENT,
            at_ms=self._clock.now_ms(),
            topic_id=work.topic_id,
            rows=found.rows,
            producer=(producer.start_ms, producer.random),
            first_sequence=first,
            group=sender.group,
        )
        error = await self._decisions.put(work.hour, intent)
        if error is None:
            sender.send(work.hour, intent, found.batch, partial(self._ended, due_ms=work.due_ms))
        elif engine.store.failed is None:
            log.warning("an intent could not be written", reason=error.message)
            engine.give_back(work, found.rows, self._clock.now_ms())
            await asyncio.sleep(WAIT_S)

    async def _drop(self, work: DispatchWork) -> None:
        """A topic was deleted: its rows are cancelled with it."""
        dropped = Decision(
            kind=DecisionKind.CANCELLED,
            at_ms=self._clock.now_ms(),
            topic_id=work.topic_id,
            rows=work.rows,
        )
        error = await self._decisions.put(work.hour, dropped)
        if error is None:
            self._engine.dropped(work)
        elif self._engine.store.failed is None:
            log.warning("a decision could not be written", reason=error.message)
            self._engine.give_back(work, work.rows, self._clock.now_ms())
            await asyncio.sleep(WAIT_S)

    async def _repeat(self, hour: int, intent: Decision) -> None:
        """Send an intent of an earlier life again, to the same group: how it ended is not known."""
        engine = self._engine
        if not engine.is_open(hour, intent):
            return
        fate = await self._gone.fate(intent.topic_id)
        if fate is Fate.GONE:
            # Whether it arrived does not matter any more. Free, the rows are dropped.
            self._ended(hour, intent, TopicNotFound("the topic was deleted"))
            return
        found = await self._loop.run_in_executor(
            self._pool,
            partial(
                collect,
                engine.store,
                engine.places(hour, intent.rows),
                ProducerId(*intent.producer),
                intent.first_sequence,
                None,
            ),
        )
        if found.batch is None or len(found.rows) != len(intent.rows):
            log.error("an open intent cannot be repeated: its rows are damaged", hour=hour)
            return
        if fate is not Fate.FORGOTTEN:
            TOPIC_ID.pack_into(found.batch, TOPIC_ID_AT, intent.topic_id)
        self._senders.to(intent.group).send(hour, intent, found.batch, self._ended, again=True)

    def _ended(
        self, hour: int, intent: Decision, error: TernError | None, due_ms: int | None = None
    ) -> None:
        now_ms = self._clock.now_ms()
        if error is None:
            if due_ms is not None:  # Not known of an earlier life's.
                self.lateness.observe(max(0, now_ms - due_ms) / 1000, len(intent.rows))
            self.dispatched += len(intent.rows)
            self._engine.paused.taken(intent.topic_id)
            done = Decision(kind=DecisionKind.DONE, at_ms=now_ms, value=intent.offset)
            self._note(hour, done)
        else:
            log.warning(
                "a broker group refuses delayed messages",
                group=intent.group,
                rows=len(intent.rows),
                reason=error.message,
            )
            if not isinstance(error, (*OF_THE_GROUP, Moved)):
                self._engine.paused.refused(intent.topic_id, self._clock.monotonic())
            self._note(
                hour, Decision(kind=DecisionKind.RELEASED, at_ms=now_ms, value=intent.offset)
            )
        self._work.set()

    def _note(self, hour: int, decision: Decision) -> None:
        """Write how an intent ended; on a full disk again, until there is room."""

        def written(result: "asyncio.Future[TernError | None]") -> None:
            error = None if result.cancelled() else result.result()
            if error is not None and self._engine.store.failed is None and not self._closed:
                log.warning("an end could not be written; trying again", reason=error.message)
                self._loop.call_later(WAIT_S, self._note, hour, decision)

        self._decisions.put(hour, decision).add_done_callback(written)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
