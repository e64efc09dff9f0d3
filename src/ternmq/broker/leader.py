"""The parts of a broker that leads, wired: each is handed the two or three things it uses.

Nothing but composition happens here. `start` replays the groups; `stop` tells clients, answers
waiting pulls and gives leases back; `close` writes what waits. The store is opened and closed by
`broker/role.py`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.dead_letters import DeadLetterWriter
from ternmq.broker.acks.detached_leases import DetachedLeases
from ternmq.broker.config import BrokerConfig, Flush
from ternmq.broker.consumer_commands import ConsumerCommands
from ternmq.broker.delivery.consume_limits import ConsumeLimits
from ternmq.broker.delivery.consumers import Consumers, LeaseTimes
from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.delivery.group_position import LedGroups
from ternmq.broker.delivery.pull import PullHandler, PullHooks
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.inspection.delivery_trace import DeliveryTrace
from ternmq.broker.inspection.figure_pages import FigurePages
from ternmq.broker.inspection.rows import RowInspection
from ternmq.broker.inspection.sessions import SessionInspection
from ternmq.broker.limits.send_limits import Drainable, SendLimits
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.log.internal_producer import InternalProducer
from ternmq.broker.maintenance.copy_forward import CopyForward
from ternmq.broker.maintenance.retention import RetainedLog, Retention, retention_plan
from ternmq.broker.maintenance.timers import BrokerTimers
from ternmq.broker.operations.admin import AdminCommands
from ternmq.broker.operations.dead_letter_admin import DeadLetterCommands, RefusedCommands
from ternmq.broker.operations.dead_letter_recall import DeadLetterRecall
from ternmq.broker.operations.group_replay import GroupReplays
from ternmq.broker.operations.lookups import DeliveryRecords, MessageLookup
from ternmq.broker.operations.prometheus import Scraper
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.operations.stats import BrokerStats
from ternmq.broker.operations.status import LeaderStatus, ServerStatus
from ternmq.broker.operations.stopped_keys import StoppedKeys
from ternmq.broker.publishing.confirm import Confirmer
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.publishing.publish_once import OncePublisher
from ternmq.broker.router import BrokerHandlers, BrokerRouter
from ternmq.broker.slots.known_placement import KnownPlacement
from ternmq.broker.slots.open_transactions import OpenTransactionSlots
from ternmq.broker.slots.peer_brokers import PeerBrokers
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames
from ternmq.broker.transactions.check_back import CheckBack, half_settings
from ternmq.broker.transactions.half_batches import HalfBatches
from ternmq.broker.transactions.half_endings import HalfEndings
from ternmq.broker.transactions.unfenced_attempts import UnfencedAttempts
from ternmq.broker.visibility import LeaderVisibility
from ternmq.core.clock import Clock
from ternmq.core.errors import TopicNotFound
from ternmq.core.log import get_logger
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import Directory
from ternmq.intake.pending_batches import AnswerFlags, PendingBatches
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.member.figures import FigureInspection
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.member.server_kind import MemberCommands
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import Listener
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.storage.files.disk import Disk
from ternmq.storage.store import Store
from ternmq.wire.messages.hello import Notice
from ternmq.wire.messages.topics import Topic
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

STOP_WITHIN_S = 5.0
LAST_ACKS_S = 0.5
"""How long a stop waits for what consumers settle once they are told."""
UNNAMED = "%unknown."


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMember:
    """The place of a broker in its broker group, as far as its parts need it."""

    id: str
    place: MemberLocation
    gate: CommitGate
    listener: Listener
    access: ClusterAccess
    """By which it finds other brokers."""
    drainable: Drainable
    """Says whether producers have to send to another broker group."""
    commands: MemberCommands
    """Answered by its role."""
    cold_below: Callable[[], int | None]
    """The offset below which bytes are left to replicas; None: nothing is."""


class BrokerParts:
    """The parts of one broker, wired."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        directory: Directory,
        clock: Clock,
        disk: Disk,
        member: BrokerMember,
    ) -> None:
        self._config, self._disk, self._clock = config, disk, clock
        self._directory, self._member, self.store = directory, member, store
        self.stuck_requests = StuckRequests(self._stuck)
        # What everything stands on. Who is named in a lambda is made further down.
        self.fetcher = Fetcher(store.messages)
        self.traffic = TrafficCounters(clock.monotonic)
        self.topics = TopicNames(
            directory, auto_create=config.auto_create_topics, body_size_max=config.body_size_max
        )
        self.committer = Committer(store, member.gate)
        self.groups = ConsumerGroups(
            clock=clock,
            record=self.committer.progress,
            on_settled=lambda group: self.confirmer.settled(group),
            groups_max=config.groups_max,
        )
        self._failure_texts = FailureTexts(pulls=store.pulls, fetcher=self.fetcher)
        self._internal_producer = InternalProducer(
            consume=store.consume, fetcher=self.fetcher, committer=self.committer, clock=clock
        )
        # Delivery.
        self.pull_handler = self._make_pull_handler()
        self.read_handler = ReadHandler(
            consume=store.consume,
            fetcher=self.fetcher,
            topics=self.topics,
            groups=LedGroups(self.groups),
        )
        self.slots = self._make_slots()
        self.consumers = self._make_consumers()
        self.ack_handler = self._make_ack_handler()
        visibility = LeaderVisibility(
            fetcher=self.fetcher,
            slots=self.slots,
            traffic=self.traffic,
            pull_handler=self.pull_handler,
            read_handler=self.read_handler,
        )
        self.committer.watch(visibility.on_safe)
        # Publishing.
        self._publisher = self._make_publisher()
        self.confirmer = Confirmer(
            groups=self.groups,
            topics=self.topics,
            committer=self.committer,
            stuck_requests=self.stuck_requests,
        )
        self._half_endings = HalfEndings(self.topics, store.halves, self.committer, clock)
        self.check_back = self._make_check_back()
        # Operations and maintenance.
        self._review_queue = ReviewQueue(
            groups=self.groups, consumers=self.consumers, committer=self.committer
        )
        self.stats, self.admin = self._make_stats(), self._make_admin()
        self.status = self._make_status()
        self.router = BrokerRouter(self._handlers(), self.stuck_requests)
        self.retention, self.timers = self._make_retention(), self._make_timers()

    # -- making parts

    def _stuck(self) -> str | None:
        """What everything waits for: replicas that are away, mostly."""
        refusal = self._member.gate.refusal
        return refusal.message if refusal is not None else None

    def _make_pull_handler(self) -> PullHandler:
        return PullHandler(
            groups=self.groups,
            consume=self.store.consume,
            fetcher=self.fetcher,
            consume_limits=ConsumeLimits(
                find=self._directory.topic, traffic=self.traffic, now=self._clock.monotonic
            ),
            failure_texts=self._failure_texts,
            lease_ms=self._config.lease_ms,
            hooks=PullHooks(
                progress_durable=self.committer.progress_durable,
                on_expired=lambda group, lease, rows: self.ack_handler.expire(group, lease, rows),
                cold_below=self._member.cold_below,
                held_slots=lambda group: self.slots.held(group),
            ),
        )

    def _make_slots(self) -> Slots:
        return Slots(
            places=KnownPlacement(self._directory, self._disk, self.store.placement_path),
            groups=self.groups,
            consume=self.store.consume,
            peer_brokers=PeerBrokers(self._member.place.broker_group, self._member.access),
            feed=self.pull_handler.feed,
            progress_durable=self.committer.progress_durable,
            open_transactions=OpenTransactionSlots(self.store.halves, self.fetcher),
        )

    def _make_consumers(self) -> Consumers:
        return Consumers(
            groups=self.groups,
            topics=self.topics,
            directory=self._directory,
            consume=self.store.consume,
            committer=self.committer,
            pull_handler=self.pull_handler,
            leases=LeaseTimes(
                lease_ms=self._config.lease_ms, grace_ms=self._config.session_grace_ms
            ),
        )

    def _make_ack_handler(self) -> AckHandler:
        return AckHandler(
            groups=self.groups,
            pull_handler=self.pull_handler,
            dead_letters=DeadLetterWriter(
                topics=self.topics,
                groups=self.groups,
                committer=self.committer,
                clock=self._clock,
                internal_producer=self._internal_producer,
                failure_texts=self._failure_texts,
            ),
            stuck_requests=self.stuck_requests,
        )

    def _make_publisher(self) -> Publisher:
        flags = AnswerFlags(
            self._member.gate,
            synced=self._config.flush is Flush.SYNC,
            traced=self._config.delivery_records_keep > 0,
        )
        return Publisher(
            topics=self.topics,
            committer=self.committer,
            pending=PendingBatches("the broker", self.store.producers, flags),
            limits=SendLimits(self._directory.topic, self._clock.monotonic, self._member.drainable),
            traffic=self.traffic,
            slots=self.slots,
            clock=self._clock,
        )

    def _make_half_batches(self) -> HalfBatches:
        return HalfBatches(
            publisher=self._publisher,
            topics=self.topics,
            under_way=self._half_endings.under_way,
            halves=self.store.halves,
            clock=self._clock,
            slots=self.slots,
            open_max=self._config.halves_max,
        )

    def _make_check_back(self) -> CheckBack:
        return CheckBack(
            half_endings=self._half_endings,
            halves=self.store.halves,
            fetcher=self.fetcher,
            directory=self._directory,
            now_ms=self._clock.now_ms,
            settings=half_settings(self._config),
        )

    def _make_stats(self) -> BrokerStats:
        return BrokerStats(
            groups=self.groups,
            topics=self.topics,
            consume=self.store.consume,
            fetcher=self.fetcher,
            pull_handler=self.pull_handler,
            traffic=self.traffic,
            review_queue=self._review_queue,
        )

    def _make_admin(self) -> AdminCommands:
        return AdminCommands(
            groups=self.groups,
            topics=self.topics,
            consumers=self.consumers,
            directory=self._directory,
            consume=self.store.consume,
            committer=self.committer,
            pull_handler=self.pull_handler,
        )

    def _make_status(self) -> LeaderStatus:
        return LeaderStatus(
            server=ServerStatus(
                place=self._member.place,
                clock=self._clock,
                disk=self._disk,
                store=self.store,
                listener=self._member.listener,
                member=self._member.id,
                started_at_ms=self._clock.now_ms(),
            ),
            keep_ms=self._config.retention_ms,
            gate=self._member.gate,
            committer=self.committer,
            directory=self._directory,
            admin=self.admin,
            read_handler=self.read_handler,
            fetcher=self.fetcher,
            half_lines=self.check_back.lines,
            scraper=Scraper(
                directory=self._directory,
                groups=self.groups,
                consume=self.store.consume,
                traffic=self.traffic,
                stats=self.stats,
                review_queue=self._review_queue,
            ),
        )

    def _handlers(self) -> BrokerHandlers:
        topics, groups, fetcher = self.topics, self.groups, self.fetcher
        now, queue, producer = self._clock.monotonic, self._review_queue, self._internal_producer
        store, search = self.store, self.store.search
        return BrokerHandlers(
            publisher=self._publisher,
            once_publisher=OncePublisher(
                publisher=self._publisher,
                slots=self.slots,
                topics=topics,
                committer=self.committer,
                search=search,
                fetcher=fetcher,
            ),
            confirmer=self.confirmer,
            half_batches=self._make_half_batches(),
            half_endings=self._half_endings,
            unfenced=UnfencedAttempts(self._half_endings, store.halves),
            check_back=self.check_back,
            consumer_commands=ConsumerCommands(
                consumers=self.consumers,
                pull_handler=self.pull_handler,
                ack_handler=self.ack_handler,
                sql_filters=self._config.sql_filters,
            ),
            detached_leases=DetachedLeases(self.groups, self.topics, self.ack_handler),
            read_handler=self.read_handler,
            slots=self.slots,
            admin=self.admin,
            stats=self.stats,
            status=self.status,
            dead_letter_commands=DeadLetterCommands(
                topics=topics,
                consumers=self.consumers,
                review_queue=queue,
                internal_producer=producer,
                consume=store.consume,
            ),
            dead_letter_recall=DeadLetterRecall(
                topics=topics,
                groups=groups,
                internal_producer=producer,
                ack_handler=self.ack_handler,
            ),
            refused_commands=RefusedCommands(
                topics=topics, review_queue=queue, internal_producer=producer
            ),
            group_replays=GroupReplays(
                topics=topics,
                groups=groups,
                consumers=self.consumers,
                consume=store.consume,
                fetcher=fetcher,
                internal_producer=producer,
                producers=store.producers,
            ),
            stopped_keys=self._make_stopped_keys(),
            lookup=MessageLookup(search=search, fetcher=fetcher, directory=self._directory),
            members=self._member.commands,
            delivery_records=DeliveryRecords(pulls=store.pulls, groups=groups, fetcher=fetcher),
            row_looks=RowInspection(
                groups=groups, topics=topics, failure_texts=self._failure_texts
            ),
            delivery_trace=DeliveryTrace(
                pulls=store.pulls, groups=groups, topics=topics, fetcher=fetcher
            ),
            figure_looks=FigureInspection(self.status.scrape, now),
            figure_pages=FigurePages(groups, topics, self.traffic, self.stats, now),
            session_looks=self._make_session_looks(),
        )

    def _make_session_looks(self) -> SessionInspection:
        now, traffic = self._clock.monotonic, self.traffic
        listener = self._member.listener
        return SessionInspection(lambda: listener.peers, now, traffic, self.topics, self.consumers)

    def _make_stopped_keys(self) -> StoppedKeys:
        return StoppedKeys(
            groups=self.groups,
            topics=self.topics,
            committer=self.committer,
            pull_handler=self.pull_handler,
            ack_handler=self.ack_handler,
            internal_producer=self._internal_producer,
            failure_texts=self._failure_texts,
        )

    def _make_retention(self) -> Retention:
        return Retention(
            retention_plan(self._config, self._member.place.data_dir),
            RetainedLog(
                store=self.store,
                disk=self._disk,
                fetcher=self.fetcher,
                committer=self.committer,
                taken=self.read_handler.taken,
            ),
            directory=self._directory,
            groups=self.groups,
            consumers=self.consumers,
            copy_forward=CopyForward(
                groups=self.groups,
                topics=self.topics,
                consumers=self.consumers,
                committer=self.committer,
                internal_producer=self._internal_producer,
            ),
            clock=self._clock,
        )

    def _make_timers(self) -> BrokerTimers:
        return BrokerTimers(
            groups=self.groups,
            pull_handler=self.pull_handler,
            ack_handler=self.ack_handler,
            committer=self.committer,
            store=self.store,
            checkpoint_interval_s=self._config.checkpoint_interval_ms / 1000,
            flush_interval_s=self._config.flush_interval_ms / 1000,
        )

    # -- the life of a leader

    async def start(self, unnamed: frozenset[int], *, promoted: bool = False) -> None:
        """Replay the groups. After a promotion the consumers of the leader before may still be at
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
        self.router.stop()
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
                await self.ack_handler.wait_for_last_acks(LAST_ACKS_S)
                await self.ack_handler.finish()
        except TimeoutError:
            log.warning("requests cut off by stopping")
        for group in self.groups:
            self.groups.write(group, group.lane.release(None))

    def lost(self, peer: Peer) -> None:
        """A client is gone."""
        self.consumers.lost(peer)
        self.check_back.lost(peer)

    async def close(self) -> None:
        self.fetcher.close()
        await self.slots.close()
        await self.committer.close()

    def topic_deleted(self, topic: Topic) -> None:
        self.read_handler.refuse(topic.id, TopicNotFound(f"topic {topic.name!r} was deleted"))
        self.traffic.forget_topic(topic.id)
        self.timers.spawn(self.admin.topic_deleted(topic))
