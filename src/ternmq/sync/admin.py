"""Blocking `mq.admin`: the calls of `ternmq.client.admin.admin`, each waited for."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

from ternmq.client.admin.admin import Admin as AsyncAdmin
from ternmq.client.admin.broker_members import BrokerState
from ternmq.client.admin.dead_letters import Ranges
from ternmq.client.admin.drain import DrainProgress
from ternmq.client.admin.merge_answers import ResetDone
from ternmq.client.admin.replay import Replay, ReplayProgress
from ternmq.client.transactions.half_sender import HalfWanted
from ternmq.client.transport.fan_out import Missing
from ternmq.sync.delays import Delays
from ternmq.sync.loop_thread import run
from ternmq.wire.messages.dead_letters import DeadDone
from ternmq.wire.messages.groups import Group, HalfLine, LedgerLine, Start
from ternmq.wire.messages.limits import AppLimit
from ternmq.wire.messages.order_keys import GroupKeys, Placement
from ternmq.wire.messages.read import Sought
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupKind, HandedOver, Standing
from ternmq.wire.messages.stats import GroupFigures, Status, TopicFigures
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.messages.transactions import HalfEnded, HalfOpens


class Admin:
    """Topics, groups, ledger, status; see `ternmq.Admin` for what each call does."""

    def __init__(self, admin: AsyncAdmin) -> None:
        self._admin = admin

    def tolerant(self) -> "Admin":
        return Admin(self._admin.tolerant())

    @property
    def missing(self) -> Missing:
        """Broker groups whose part is missing, and why."""
        return self._admin.missing

    def broker_groups(self) -> list[str]:
        return run(self._admin.broker_groups())

    def create_topic(self, name: str, settings: TopicSettings | None = None) -> Topic:
        return run(self._admin.create_topic(name, settings))

    def topics(self, prefix: str = "") -> list[Topic]:
        return run(self._admin.topics(prefix))

    def topic(self, name: str) -> Topic:
        return run(self._admin.topic(name))

    def set_topic(self, name: str, **changes: Any) -> Topic:
        return run(self._admin.set_topic(name, **changes))

    def placement(self) -> Placement:
        return run(self._admin.placement())

    def move_slots(self, group: str, slots: Sequence[int], *, force: bool = False) -> Placement:
        return run(self._admin.move_slots(group, slots, force=force))

    def balance_slots(self, *, leaving: Sequence[str] = ()) -> Placement:
        return run(self._admin.balance_slots(leaving=leaving))

    def release_slots(self, group: str) -> Placement:
        return run(self._admin.release_slots(group))

    def set_weight(self, group: str, weight: int) -> Placement:
        return run(self._admin.set_weight(group, weight))

    def set_limit(self, app: str, **changes: Any) -> AppLimit:
        return run(self._admin.set_limit(app, **changes))

    def limits(self) -> list[AppLimit]:
        return run(self._admin.limits())

    def delete_topic(self, name: str) -> None:
        run(self._admin.delete_topic(name))

    def groups(self, topic: str = "", group: str = "") -> list[Group]:
        return run(self._admin.groups(topic, group))

    def create_group(self, topic: str, group: str, start: Start, broker_group: str = "") -> Group:
        return run(self._admin.create_group(topic, group, start, broker_group))

    def delete_group(self, topic: str, group: str) -> None:
        run(self._admin.delete_group(topic, group))

    def set_group(self, topic: str, group: str, **changes: Any) -> Group:
        return run(self._admin.set_group(topic, group, **changes))

    def group_keys(self, topic: str, group: str) -> GroupKeys:
        return run(self._admin.group_keys(topic, group))

    def resume_key(self, topic: str, group: str, key: str | None = None, skip: bool = False) -> int:
        return run(self._admin.resume_key(topic, group, key, skip))

    def pause_consumer(self, topic: str, group: str, session: str, paused: bool = True) -> Group:
        return run(self._admin.pause_consumer(topic, group, session, paused))

    def open_dead_letters(self, group: str, broker_group: str = "") -> Ranges:
        return run(self._admin.open_dead_letters(group, broker_group))

    def expired_dead_letters(self, group: str) -> int:
        return run(self._admin.expired_dead_letters(group))

    def resend_dead_letters(self, group: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        return run(self._admin.resend_dead_letters(group, ranges, broker_group))

    def delete_dead_letters(self, group: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        return run(self._admin.delete_dead_letters(group, ranges, broker_group))

    def open_refused(self, topic: str, broker_group: str = "") -> Ranges:
        return run(self._admin.open_refused(topic, broker_group))

    def resend_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        return run(self._admin.resend_refused(topic, ranges, broker_group))

    def delete_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        return run(self._admin.delete_refused(topic, ranges, broker_group))

    def topic_figures(self, topic: str) -> list[TopicFigures]:
        return run(self._admin.topic_figures(topic))

    def group_figures(self, topic: str = "", group: str = "") -> list[GroupFigures]:
        return run(self._admin.group_figures(topic, group))

    def reset_group(
        self, topic: str, group: str, start: Start, dry_run: bool = False, broker_group: str = ""
    ) -> ResetDone:
        return run(self._admin.reset_group(topic, group, start, dry_run, broker_group))

    def retry_group(self, topic: str, group: str, dry_run: bool = False) -> int:
        return run(self._admin.retry_group(topic, group, dry_run))

    def replay(
        self, wanted: Replay, told: Callable[[ReplayProgress], None] = lambda _: None
    ) -> ReplayProgress:
        return run(self._admin.replay(wanted, told))

    def ledger(self, topic: str = "", group: str = "") -> list[LedgerLine]:
        return run(self._admin.ledger(topic, group))

    def half_lines(self, topic: str = "") -> list[HalfLine]:
        return run(self._admin.half_lines(topic))

    def halves(self, **wanted: Unpack[HalfWanted]) -> HalfOpens:
        return run(self._admin.halves(**wanted))

    def end_half(self, transaction: str, action: Literal["commit", "rollback"]) -> HalfEnded:
        return run(self._admin.end_half(transaction, action))

    def seek(self, topic: str, start: Start, broker_group: str = "") -> Sought:
        return run(self._admin.seek(topic, start, broker_group))

    def seek_all(self, topic: str, start: Start) -> dict[str, Sought]:
        return run(self._admin.seek_all(topic, start))

    @property
    def delays(self) -> Delays:
        """Messages that are not due yet."""
        return Delays(self._admin.delays)

    def broker_status(self, topics: Sequence[str] = ()) -> list[Status]:
        return run(self._admin.broker_status(topics))

    def meta_status(self) -> Status:
        return run(self._admin.meta_status())

    def brokers(self, kind: BrokerGroupKind = "realtime") -> list[BrokerState]:
        return run(self._admin.brokers(kind))

    def standings(self) -> list[Standing]:
        return run(self._admin.standings())

    def promote(
        self,
        group: str,
        member: str | None = None,
        force: bool = False,
        accept_loss: bool = False,
        kind: BrokerGroupKind = "realtime",
    ) -> Standing:
        return run(self._admin.promote(group, member, force, accept_loss, kind))

    def handover(
        self, group: str, member: str | None = None, kind: BrokerGroupKind = "realtime"
    ) -> HandedOver:
        return run(self._admin.handover(group, member, kind))

    def forget_member(
        self, group: str, member: str, accept_loss: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> Standing:
        return run(self._admin.forget_member(group, member, accept_loss, kind))

    def drain(
        self, broker_group: str, undo: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        return run(self._admin.drain(broker_group, undo, kind))

    def drain_progress(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        return run(self._admin.drain_progress(broker_group, kind))

    def routes(self) -> list[Route]:
        return run(self._admin.routes())
