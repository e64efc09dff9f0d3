"""What an operator may set for a broker, besides what every member of a broker group has.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`); here is said
which settings exclude each other. Never reads a file or the environment: `node/config.py` does.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check, size
from ternmq.core.units import DAY_MS, GIB, HOUR_MS, KIB, MIB
from ternmq.replication.config import MemberConfig

POOL_MIN = MIB


class Flush(StrEnum):
    """What may be lost when the machine (not the process) dies."""

    SYNC = "sync"
    """Nothing acknowledged is lost. Many producers share one fdatasync."""

    ASYNC = "async"
    """What came after the last flush: at most `flush_interval_ms` or `flush_bytes` of messages."""


class ColdReads(StrEnum):
    """Which server gives consumers the bytes of old messages."""

    MASTER = "master"
    REPLICA = "replica"
    """A replica in step, where there is one; leases come from the master all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(MemberConfig):
    """How a broker stores, keeps and hands out messages."""

    flush: Annotated[
        Flush, about("sync: an ack means on disk; async: handed to the operating system")
    ] = Flush.SYNC
    flush_interval_ms: Annotated[
        int, about("async only: flushed at least this often", 1, 60_000)
    ] = 100
    flush_bytes: Annotated[
        int, size("async only: flushed when so much is not flushed yet", 64 * KIB, GIB)
    ] = 16 * MIB
    write_pool: Annotated[
        int,
        size("async only: logs are written from so much locked memory; 0: no pool", 0, GIB),
    ] = 0

    delivery_records_keep: Annotated[
        int,
        size("bytes of delivery records kept for the archive and the trace", 0, 1024 * GIB),
    ] = GIB
    disk_warn_percent: Annotated[
        int, about("from here on expired segments go at any hour", 1, 100)
    ] = 75
    disk_forced_percent: Annotated[
        int, about("from here on the oldest segments go, expired or not", 1, 100)
    ] = 85
    disk_full_percent: Annotated[
        int, about("from here on messages are refused; consuming goes on", 1, 100)
    ] = 90
    retention_ms: Annotated[
        int, about("segments whose last message is older go; 0: never by age", 0, 3_650 * DAY_MS)
    ] = 3 * DAY_MS
    retention_size: Annotated[
        int, size("above this the oldest segments go; 0: no limit", 0, 1024 * 1024 * GIB)
    ] = 0
    retention_hour: Annotated[
        int, about("expired segments go only in this hour of the day, UTC; -1: at any", -1, 23)
    ] = -1
    retention_interval_ms: Annotated[
        int, about("how often it is looked what may go", 100, HOUR_MS)
    ] = 10_000
    retention_keep_unread: Annotated[
        bool, about("keep what a group still needs, also when the disk gets full")
    ] = False
    dead_letter_keep_ms: Annotated[
        int, about("dead letters are gone after this; 0: kept like messages", 0, 3_650 * DAY_MS)
    ] = 3 * DAY_MS

    body_size_max: Annotated[int, size("largest body of a message, compressed", 1, 4 * MIB)] = (
        4 * MIB
    )
    lease_ms: Annotated[
        int, about("how long a consumer holds messages without a sign of life", 100, DAY_MS)
    ] = 60_000
    session_grace_ms: Annotated[
        int, about("how long a consumer that lost its connection keeps its messages", 0, HOUR_MS)
    ] = 5_000
    cold_reads: Annotated[
        ColdReads, about("who gives consumers the bytes of old messages: master or replica")
    ] = ColdReads.MASTER
    cold_after: Annotated[
        int, size("old: so far behind the end of the log, or no longer in memory", 0, 1024 * GIB)
    ] = GIB

    sql_filters: Annotated[
        bool, about("consumers may filter by SQL92 expressions; tags work in any case")
    ] = True

    groups_max: Annotated[
        int, about("consumer groups that a broker may have, of all topics", 1, 10_000_000)
    ] = 100_000
    halves_max: Annotated[
        int, about("transactions that may be open on a broker", 1, 10_000_000)
    ] = 100_000
    half_first_check_ms: Annotated[
        int, about("when a transaction that has not ended is first asked about", 10, DAY_MS)
    ] = 6_000
    half_check_interval_ms: Annotated[
        int, about("how often it is asked about after that", 10, DAY_MS)
    ] = 30_000
    half_checks_max: Annotated[
        int, about("how often at most, before it is dropped for a person to decide", 1, 1_000)
    ] = 15
    half_parked_ms: Annotated[
        int, about("how long a dropped transaction waits for a person", 1_000, 30 * DAY_MS)
    ] = 3 * DAY_MS
    half_expires_ms: Annotated[
        int, about("a detached transaction without its own expiry ends so", 1_000, 30 * DAY_MS)
    ] = DAY_MS

    def __post_init__(self) -> None:
        check(self)
        if self.write_pool and self.flush is Flush.SYNC:
            raise BadConfig(
                'write_pool is for flush = "async": with sync every round waits for the disk, and '
                "a pool would only copy; leave it out"
            )
        if 0 < self.write_pool < POOL_MIN:
            raise BadConfig(f"write_pool = {self.write_pool}: at least {POOL_MIN} bytes, or 0")
