"""The parts of a broker that leads, wired: each is handed the two or three things it uses.

Nothing but composition happens here. `start` replays the groups; `stop` tells clients, answers
waiting pulls and gives leases back; `close` writes what waits. The store is opened and closed by
whoever made them.
"""

import asyncio
import os

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.dead_letters import DeadLetterWriter
from ternmq.broker.consumer_commands import ConsumerCommands
from ternmq.broker.delivery.consume_limits import ConsumeLimits
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.limits.send_limits import SendLimits
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.log.internal_producer import InternalProducer
from ternmq.broker.maintenance.copy_forward import CopyForward
from ternmq.broker.maintenance.retention import RetainedLog, Retention, RetentionPlan
from ternmq.broker.maintenance.timers import BrokerTimers
from ternmq.broker.operations.admin import AdminCommands
from ternmq.broker.operations.dead_letter_admin import DeadLetterAdmin, RefusedAdmin
from ternmq.broker.operations.group_replay import GroupReplays
from ternmq.broker.operations.lookups import DeliveryRecords, MessageLookup
from ternmq.broker.operations.prometheus import TROUBLES, Scraper, Trouble
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.operations.stats import BrokerStats
from ternmq.broker.operations.stopped_keys import StoppedKeys
from ternmq.broker.publishing.confirm import Confirmer
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.publishing.publish_once import OncePublisher
from ternmq.broker.router import BrokerRouter, Operating
from ternmq.broker.slots.open_transactions import OpenTransactionSlots
from ternmq.broker.slots.peer_brokers import PeerBrokers
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames
from ternmq.broker.transactions.check_back import CheckBack, HalfSettings
from ternmq.broker.transactions.half_batches import HalfBatches
from ternmq.broker.transactions.unfenced import Unfenced
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.core.errors import TopicNotFound
from ternmq.core.log import get_logger
from ternmq.core.process import own_cpu_s, own_memory
from ternmq.discovery.directory import Directory
from ternmq.metrics.samples import Samples
from ternmq.replication.commit_gate import CommitGate
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.rpc.prometheus import server_figures
from ternmq.rpc.server import Listener
from ternmq.storage.config import StorageConfig
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.append import committed
from ternmq.storage.log.retention_rules import RetentionRules
from ternmq.storage.messages.figures import log_figures
from ternmq.storage.messages.message_log import Append
from ternmq.storage.store import Store
from ternmq.wire.messages.dead_letters import RefusedFind, RefusedHandle
from ternmq.wire.messages.groups import GroupFind, GroupNamed
from ternmq.wire.messages.hello import Empty, Notice
from ternmq.wire.messages.order_keys import KeyResume, SlotsFind
from ternmq.wire.messages.publish import Find
from ternmq.wire.messages.stats import Status, StatusQuery, TopicFiguresFind
from ternmq.wire.messages.topics import Topic
from ternmq.wire.messages.transactions import DetachedEnd, HalfEnd, HalfFind
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

STOP_WITHIN_S = 5.0
LAST_WORDS_S = 0.5
"""How long a stop waits for what consumers settle once they are told."""
LOOK_S = 0.01
UNNAMED = "%unknown."


def open_store(
    config: NodeConfig, epoch: int, clock: Clock, disk: Disk, suffix: bool = False
) -> Store:
    """Open and recover the data directory; blocking. With `suffix` only what is known to be safe
    is visible."""
    settings = StorageConfig(
        flush=config.flush.value,
        flush_interval_ms=config.flush_interval_ms,
        flush_bytes=config.flush_bytes,
        segment_size=config.segment_size,
        min_free=config.disk_free_min,
        full_percent=config.disk_full_percent,
        pull_keep=config.delivery_records_keep,
    )
    return Store.open(
        disk,
        config.data_dir / "broker",
        clock=clock,
        epoch=epoch,
        config=settings,
        suffix=suffix,
    )


def retention_plan(config: NodeConfig) -> RetentionPlan:
    rules = RetentionRules(
        age_ms=config.retention_ms,
        size=config.retention_size,
        hour=config.retention_hour,
        warn_percent=config.disk_warn_percent,
        forced_percent=config.disk_forced_percent,
    )
    return RetentionPlan(
        rules=rules,
        keep_unread=config.retention_keep_unread,
        dead_letter_keep_ms=config.dead_letter_keep_ms,
        interval_s=config.retention_interval_ms / 1000,
        directory=config.data_dir,
    )


class BrokerParts:
    """The parts of one broker, wired."""

    def __init__(
        self,
        config: NodeConfig,
        store: Store,
        directory: Directory,
        clock: Clock,
        disk: Disk,
        *,
        safety: CommitGate | None = None,
        url: str = "",
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._started_at_ms = clock.now_ms()
        self.listener: Listener | None = None
        self.store = store
        self.fetcher = Fetcher(store.messages)
        self.traffic = TrafficCounters(clock.monotonic)
        self.committer = Committer(store, on_safe=self._on_safe, safety=safety)
        self.groups = ConsumerGroups(clock=clock, record=self.committer.progress)
        self.topics = TopicNames(
            directory, auto_create=config.auto_create_topics, body_size_max=config.body_size_max
        )
        failure_texts = FailureTexts(pulls=store.pulls, fetcher=self.fetcher)
        self.pull_handler = PullHandler(
            groups=self.groups,
            consume=store.consume,
            fetcher=self.fetcher,
            consume_limits=ConsumeLimits(
                find=directory.topic, traffic=self.traffic, now=clock.monotonic
            ),
            failure_texts=failure_texts,
            progress_durable=self.committer.outlives,
            lease_ms=config.lease_ms,
        )
        self.slots = self._slots(url)
        self.read_handler = ReadHandler(consume=store.consume, fetcher=self.fetcher)
        self.consumers = Consumers(
            groups=self.groups,
            topics=self.topics,
            directory=directory,
            consume=store.consume,
            committer=self.committer,
            pull_handler=self.pull_handler,
            clock=clock,
        )
        self.consumers.lease_ms, self.consumers.grace_ms = config.lease_ms, config.session_grace_ms
        internal_producer = InternalProducer(
            consume=store.consume, fetcher=self.fetcher, committer=self.committer, clock=clock
        )
        dead_letters = DeadLetterWriter(
            topics=self.topics,
            groups=self.groups,
            committer=self.committer,
            clock=clock,
            internal_producer=internal_producer,
            failure_texts=failure_texts,
        )
        review_queue = ReviewQueue(
            groups=self.groups, consumers=self.consumers, committer=self.committer
        )
        dead = DeadLetterAdmin(
            topics=self.topics,
            consumers=self.consumers,
            review_queue=review_queue,
            internal_producer=internal_producer,
        )
        group_replays = GroupReplays(
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            consume=store.consume,
            fetcher=self.fetcher,
            internal_producer=internal_producer,
            producers=store.producers,
        )
        self.retention = self._retention(internal_producer)
        self.ack_handler = AckHandler(
            groups=self.groups, pull_handler=self.pull_handler, dead_letters=dead_letters
        )
        self.admin = AdminCommands(
            groups=self.groups,
            topics=self.topics,
            consumers=self.consumers,
            directory=directory,
            consume=store.consume,
            committer=self.committer,
            pull_handler=self.pull_handler,
        )
        self.router = self._router(dead, group_replays)
        self._add_keys(internal_producer, failure_texts)
        self.confirmer = Confirmer(groups=self.groups, topics=self.topics, committer=self.committer)
        self.router.add(Command.CONFIRM, self.confirmer.confirm)
        self._watch(review_queue)
        self._add_policies(
            RefusedAdmin(
                topics=self.topics, review_queue=review_queue, internal_producer=internal_producer
            )
        )
        self.timers = BrokerTimers(
            groups=self.groups,
            pull_handler=self.pull_handler,
            ack_handler=self.ack_handler,
            committer=self.committer,
            store=store,
            checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
            flush_interval_s=config.flush_interval_ms / 1000,
        )
        self._safety = safety
        self.member = ""
        """Which member of its group this is."""

    def _slots(self, url: str) -> Slots:
        return Slots(
            directory=self._directory,
            groups=self.groups,
            consume=self.store.consume,
            peer_brokers=PeerBrokers(self._config.broker_group, url),
            feed=self.pull_handler.feed,
            progress_durable=self.committer.outlives,
            staged=OpenTransactionSlots(self.store.halves, self.fetcher),
        )

    def _watch(self, review_queue: ReviewQueue) -> None:
        """Who works out figures."""
        self.stats = BrokerStats(
            groups=self.groups,
            topics=self.topics,
            consume=self.store.consume,
            fetcher=self.fetcher,
            pull_handler=self.pull_handler,
            traffic=self.traffic,
            review_queue=review_queue,
        )
        self.scraper = Scraper(
            directory=self._directory,
            groups=self.groups,
            consume=self.store.consume,
            traffic=self.traffic,
            stats=self.stats,
            review_queue=review_queue,
        )

    def _retention(self, internal_producer: InternalProducer) -> Retention:
        copy_forward = CopyForward(
            groups=self.groups,
            topics=self.topics,
            consumers=self.consumers,
            committer=self.committer,
            internal_producer=internal_producer,
        )
        stored = RetainedLog(
            store=self.store,
            disk=self._disk,
            fetcher=self.fetcher,
            committer=self.committer,
            taken=self.read_handler.taken,
        )
        return Retention(
            retention_plan(self._config),
            stored,
            directory=self._directory,
            groups=self.groups,
            consumers=self.consumers,
            copy_forward=copy_forward,
            clock=self._clock,
        )

    def _router(self, dead: DeadLetterAdmin, group_replays: GroupReplays) -> BrokerRouter:
        publisher = Publisher(
            topics=self.topics,
            committer=self.committer,
            producers=self.store.producers,
            limits=SendLimits(self._directory.topic, self._clock.monotonic),
            traffic=self.traffic,
            slots=self.slots,
            clock=self._clock,
        )
        self.publisher = publisher
        delivery_records = DeliveryRecords(
            pulls=self.store.pulls, groups=self.groups, fetcher=self.fetcher
        )
        consumer_commands = ConsumerCommands(
            consumers=self.consumers, pull_handler=self.pull_handler, ack_handler=self.ack_handler
        )
        router = BrokerRouter(
            publisher=publisher,
            consumer_commands=consumer_commands,
            read_handler=self.read_handler,
            topics=self.topics,
            operating=Operating(
                admin=self.admin,
                dead=dead,
                group_replays=group_replays,
                delivery_records=delivery_records,
                status=self.status,
            ),
        )
        search, fetcher = self.store.search, self.fetcher
        once = OncePublisher(
            publisher=publisher,
            slots=self.slots,
            topics=self.topics,
            committer=self.committer,
            search=search,
            fetcher=fetcher,
        )
        finder = MessageLookup(search=search, fetcher=fetcher, directory=self._directory)
        router.takes_batches(Command.PUBLISH_ONCE, once.publish)
        router.answers(Command.FIND, Find, lambda _, request: finder.find(request))
        router.answers(Command.SLOTS_OPEN, SlotsFind, lambda _, find: self.slots.open(find))
        self._serve_transactions(router, publisher)
        return router

    def _add_keys(self, internal_producer: InternalProducer, failure_texts: FailureTexts) -> None:
        keys = StoppedKeys(
            groups=self.groups,
            topics=self.topics,
            committer=self.committer,
            pull_handler=self.pull_handler,
            ack_handler=self.ack_handler,
            internal_producer=internal_producer,
            failure_texts=failure_texts,
        )
        self.router.answers(Command.GROUP_KEYS, GroupNamed, lambda _, r: keys.show(r))
        self.router.answers(Command.KEY_RESUME, KeyResume, lambda _, r: keys.resume(r))

    def _add_policies(self, refused: RefusedAdmin) -> None:
        """The commands that show what limits do, and handle what they refused."""
        answers, command, stats = self.router.answers, Command, self.stats
        find = self.admin.find
        answers(command.TOPIC_FIGURES, TopicFiguresFind, lambda _, what: stats.topics(what))
        answers(command.GROUP_FIGURES, GroupFind, lambda _, what: stats.groups(find, what))
        answers(command.REFUSED_OPEN, RefusedFind, lambda _, what: refused.open(what))
        answers(command.REFUSED_RESEND, RefusedHandle, lambda _, what: refused.resend(what))
        answers(command.REFUSED_DELETE, RefusedHandle, lambda _, what: refused.delete(what))

    def _serve_transactions(self, router: BrokerRouter, publisher: Publisher) -> None:
        config = self._config
        transactions = HalfBatches(
            publisher=publisher,
            topics=self.topics,
            committer=self.committer,
            halves=self.store.halves,
            directory=self._directory,
            clock=self._clock,
            slots=self.slots,
        )
        self.check_back = CheckBack(
            transactions=transactions,
            halves=self.store.halves,
            fetcher=self.fetcher,
            directory=self._directory,
            now_ms=self._clock.now_ms,
            settings=HalfSettings(
                first_check_ms=config.half_first_check_ms,
                check_interval_ms=config.half_check_interval_ms,
                checks_max=config.half_checks_max,
                parked_ms=config.half_parked_ms,
                expires_ms=config.half_expires_ms,
            ),
        )
        self.admin.halves = self.check_back.lines
        unfenced = Unfenced(transactions, self.store.halves)
        router.takes_batches(Command.HALF, transactions.stage)
        router.answers(Command.HALF_END, HalfEnd, lambda _, end: transactions.end(end))
        router.answers(
            Command.DETACHED_END,
            DetachedEnd,
            lambda _, end: transactions.end_detached(end) if end.fenced else unfenced.end(end),
        )
        router.says(Command.HALF_LIST, HalfFind, lambda _, find: self.check_back.find(find))
        router.says(Command.CHECKER, Empty, lambda peer, _: self.check_back.here(peer))

    async def start(self, unnamed: frozenset[int], *, promoted: bool = False) -> None:
        """Replay the groups. After a promotion the consumers of the master before may still be at
        work: what they hold waits as long as their leases, until it is known that a group is not
        ordered."""
        # A topic that the registry has lost is not a deleted one: its groups wait for its name.
        names = {topic_id: f"{UNNAMED}{topic_id}" for topic_id in unnamed}
        names |= {topic.id: topic.name for topic in self._directory.topics()}
        grace_ms = self._config.session_grace_ms
        if promoted:
            grace_ms = max(grace_ms, self._config.lease_ms)
        await self.timers.replay(names, grace_ms)
        await self.slots.start()
        for topic in self._directory.topics():
            if topic.settings.consume_paused:
                self.admin.topic_changed(topic)

    async def stop(self, listener: Listener) -> None:
        """No new requests; clients are told; what is held is given back and written."""
        self.router.stopping = True
        listener.stop_accepting()
        notice = pack(Notice(kind="stopping", text="the broker is stopping"))
        for peer in list(listener.peers):
            peer.push(Command.NOTICE, notice)
        self.pull_handler.stop()
        self.read_handler.stop()
        self.confirmer.stop()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self.router.finish()
                await self._last_words()
                await self.ack_handler.finish()
        except TimeoutError:
            log.warning("requests cut off by stopping")
        for group in self.groups:
            self.groups.write(group, group.lane.release(None))

    async def _last_words(self) -> None:
        """Consumers that were told settle what they have done and give back what they have not
        begun: nobody gets that twice. Those who are in the middle of something are not waited for.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_WORDS_S
        busy = [group.lane for group in self.groups if group.consumers]
        while loop.time() < until and any(lane.leases for lane in busy):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    def lost(self, peer: Peer) -> None:
        """A client is gone."""
        self.consumers.lost(peer)
        self.check_back.lost(peer)

    async def close(self) -> None:
        self.fetcher.close()
        await self.slots.close()
        await self.committer.close()

    def status(self, query: StatusQuery) -> Status:
        """What this broker says about itself."""
        free, size = self._disk.free(self._config.data_dir)
        _, state = self.trouble(free, size)
        address = join_address(*self.listener.address) if self.listener else ""
        return Status(
            node=self._config.broker_group,
            role="broker",
            state=state,
            address=address,
            data_dir=str(self._config.data_dir.absolute()),
            started_at_ms=self._started_at_ms,
            now_ms=self._clock.now_ms(),
            disk_free=free,
            disk_size=size,
            cpu_s=own_cpu_s(),
            memory=own_memory(),
            connections=len(self.listener.peers) if self.listener else 0,
            log_start=self.store.messages.start_offset,
            log_end=self.store.messages.safe_offset,
            topics=self.admin.topic_status(query.topics),
            epoch=self.store.epoch,
            pid=os.getpid(),
            member=self.member,
            untaken=self.read_handler.untaken(self._directory.topics()),
        )

    async def scrape(self, out: Samples) -> None:
        """Everything that Prometheus is shown of this broker."""
        status = self.status(StatusQuery())
        trouble, _ = self.trouble(status.disk_free, status.disk_size)
        assert self.listener is not None
        server_figures(out, status, self.listener)
        log_figures(out, status.role, self.store.messages)
        out.add("tern_read_bytes_total", self.fetcher.read_size)
        out.add("tern_diverged_messages", 0)
        for alarm in TROUBLES:
            out.add("tern_broker_alarms", alarm == trouble, alarm)
        self.scraper.halves(out, self.admin.halves())
        await self.scraper.topics(out)
        await self.scraper.lanes(out)

    def trouble(self, free: int, size: int) -> tuple[Trouble | None, str]:
        """Why messages are refused: which alarm it is, and for people; or ok."""
        failed = self.committer.failed or self.store.pulls.failed
        if failed is not None:
            return "store_failed", failed.message
        if free < self.store.messages.reserved(size):
            return "disk_full", f"disk almost full: {free} bytes free, messages are refused"
        if self._safety is not None and self._safety.refusal is not None:
            return "read_only", f"read-only: {self._safety.refusal.message}"
        return None, "ok"

    def _on_safe(self, appends: list[Append]) -> None:
        """Batches became safe: now consumers may see them."""
        self.fetcher.remember(appends)
        grown: dict[int, list[int]] = {}
        for append in appends:
            if append.special is not None:
                self.slots.committed()
                for placed in committed(append.special):
                    known = grown.setdefault(placed.topic_id, [0, 0, 0])
                    known[0] = placed.sequence + placed.count
                    known[1], known[2] = known[1] + placed.count, known[2] + placed.size
                continue
            end, size = append.base_sequence + append.count, len(append.batch)
            known = grown.setdefault(append.topic_id, [0, 0, 0])
            known[0], known[1], known[2] = end, known[1] + append.count, known[2] + size
        for topic_id, (end, rows, size) in grown.items():
            self.traffic.stored(topic_id, rows, size)
            self.pull_handler.grew(topic_id, end)
            self.read_handler.grew(topic_id)

    def topic_deleted(self, topic: Topic) -> None:
        self.read_handler.refuse(topic.id, TopicNotFound(f"topic {topic.name!r} was deleted"))
        self.traffic.forget_topic(topic.id)
        self.timers.spawn(self.admin.topic_deleted(topic))
