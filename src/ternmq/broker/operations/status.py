"""What a broker says about itself, leading or following: STATUS, LEDGER, figures for Prometheus.

Worked out when asked for, from memory and the free space of the disk. Never changes anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.operations.admin import AdminCommands
from ternmq.broker.operations.prometheus import TROUBLES, Scraper, Trouble
from ternmq.core.clock import Clock
from ternmq.discovery.directory import Directory
from ternmq.metrics.samples import Samples
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.member.member_location import MemberLocation
from ternmq.replication.member.status_facts import StatusFacts
from ternmq.rpc.prometheus import server_figures
from ternmq.rpc.server import Listener
from ternmq.storage.files.disk import Disk
from ternmq.storage.messages.message_log import log_figures
from ternmq.storage.store import Store
from ternmq.wire.messages.groups import GroupFind, HalfLine, Ledger
from ternmq.wire.messages.stats import Status, StatusQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What the status of a leader and that of a follower have in common."""

    place: MemberLocation
    clock: Clock
    disk: Disk
    store: Store
    listener: Listener
    member: str
    """The id by which this server joined its broker group."""
    started_at_ms: int

    def free(self) -> tuple[int, int]:
        """Free bytes of the disk, and all of them."""
        return self.disk.free(self.place.data_dir)

    def status(self, state: str, disk: tuple[int, int], **role: Any) -> Status:
        """`role`: what only this role has to say."""
        facts = StatusFacts(
            role="broker",
            place=self.place,
            clock=self.clock,
            listener=self.listener,
            member=self.member,
            messages=self.store.messages,
            started_at_ms=self.started_at_ms,
        )
        return facts.status(state, disk, **role)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStatus:
    """The status of a broker that leads."""

    server: ServerStatus
    gate: CommitGate
    committer: Committer
    directory: Directory
    admin: AdminCommands
    read_handler: ReadHandler
    fetcher: Fetcher
    scraper: Scraper
    half_lines: Callable[[], list[HalfLine]]
    """What is in transactions that have not ended."""
    keep_ms: int
    """How old messages may get; 0: as old as they like."""

    def status(self, query: StatusQuery) -> Status:
        disk = self.server.free()
        return self.server.status(
            self.trouble(*disk)[1],
            disk,
            topics=self.admin.topic_status(query.topics),
            epoch=self.server.store.epoch,
            untaken=self.read_handler.untaken(self.directory.topics()),
            keep_ms=self.keep_ms,
        )

    async def ledger(self, request: GroupFind) -> Ledger:
        return await self.admin.ledger(request, self.half_lines())

    async def scrape(self, out: Samples) -> None:
        """Everything that Prometheus is shown of this broker."""
        status = self.status(StatusQuery())
        trouble, _ = self.trouble(status.disk_free, status.disk_size)
        server_figures(out, status, self.server.listener)
        log_figures(out, status.role, self.server.store.messages)
        out.add("tern_read_bytes_total", self.fetcher.read_size)
        out.add("tern_diverged_messages", 0)
        rotten = sum(end - start for start, end in list(self.server.store.pulls.rotten.items()))
        out.add("tern_delivery_records_damaged_bytes", rotten)
        for alarm in TROUBLES:
            out.add("tern_broker_alarms", alarm == trouble, alarm)
        self.scraper.halves(out, self.half_lines())
        await self.scraper.topics(out)
        await self.scraper.lanes(out)

    def trouble(self, free: int, size: int) -> tuple[Trouble | None, str]:
        """Why messages are refused: which alarm it is, and for people; or ok."""
        store = self.server.store
        failed = self.committer.failed or store.pulls.failed
        if failed is not None:
            return "store_failed", failed.message
        if free < store.messages.reserved(size):
            return "disk_full", f"disk almost full: {free} bytes free, messages are refused"
        if self.gate.refusal is not None:
            return "read_only", self.gate.lacks or f"read-only: {self.gate.refusal.message}"
        return None, self.gate.lacks or store.report.damage or "ok"
