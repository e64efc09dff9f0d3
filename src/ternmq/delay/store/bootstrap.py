"""The files that a new replica gets because the leader's logs no longer hold their content.

A `BootstrapFiles` names the files of every hour as far as the last checkpoint says that they are on
disk. They only grow, so those bytes stay as they are and can be read piece by piece for as long as
it takes; meanwhile no hour is removed and no log trimmed, until `close`. The logs of the replica
begin where that checkpoint has them: the message log at what is scheduled, the journal at what lies
in dispatch logs. What the replica does with it is in `bootstrap_install`.
"""

import msgspec

from ternmq.batch.layout import read_stamp
from ternmq.core.errors import ProtocolError
from ternmq.core.units import MIB
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.checkpoint import DelayCheckpoint, KnownTopic
from ternmq.delay.store.bootstrap_install import (
    DISPATCH,
    SCHEDULE,
    BaseFile,
    BootstrapInstall,
    Manifest,
    encode,
)
from ternmq.delay.store.store import DelayStore
from ternmq.storage.consume.batch_scan import MessageFormat

__all__ = ["BaseFile", "BootstrapFiles", "BootstrapInstall"]

READ_SIZE = 4 * MIB


class BootstrapFiles:
    """A leader's files while a replica copies them. Made on the scheduling thread."""

    def __init__(self, store: DelayStore) -> None:
        self._store = store
        known = store.known
        self.files = [
            BaseFile(kind, hour.start, length)
            for hour in known.hours
            for kind, length in ((SCHEDULE, hour.length), (DISPATCH, hour.decided))
            if length
        ]
        store.checkpoints.hold(id(self), (hour.start for hour in known.hours))
        try:
            self.manifest = encode(
                Manifest(
                    checkpoint=checkpoint_file.encode(_begin_with(store, known)),
                    producers=store.wal.producers.snapshot(known.scheduled),
                    files=[(file.kind, file.hour, file.length) for file in self.files],
                )
            )
        except BaseException:
            self.close()
            raise

    def read(self, kind: str, hour: int, offset: int, size: int) -> bytes:
        """Bytes of one of the files, up to `size` of them; any thread. Raises `Corrupt`."""
        length = next((f.length for f in self.files if f[:2] == (kind, hour)), None)
        if length is None or not self._store.checkpoints.holds(id(self)):
            raise ProtocolError(f"the {kind} log of hour {hour} is not being copied")
        files = self._store.schedule_files if kind == SCHEDULE else self._store.dispatch_files
        return files.read(hour, offset, max(0, min(size, length - offset)))

    def close(self) -> None:
        """The copy is over: files of hours that are gone may be removed."""
        self._store.checkpoints.let_go(id(self))


def _begin_with(store: DelayStore, known: DelayCheckpoint) -> DelayCheckpoint:
    """The checkpoint of a replica whose message log begins at what is scheduled here."""
    ends = dict(store.wal.counts.ends)  # Before the log is read: it has what came meanwhile.
    counted: set[int] = set()
    at, safe, form = known.scheduled, store.messages.safe_offset, MessageFormat()
    while at < safe:
        view, low = memoryview(store.wal.read(at, READ_SIZE, safe)), 0
        while low < len(view):
            size = form.size(view[low:])
            form.check(view[low : low + size], at + low)
            stamp = read_stamp(view[low : low + size])
            if stamp.topic_id not in counted:
                counted.add(stamp.topic_id)
                ends[stamp.topic_id] = stamp.base_sequence
            low += size
        at += low
    gone = {topic.id: topic for topic in known.topics}
    return msgspec.structs.replace(
        known,
        clean=False,
        wal_durable=known.scheduled,
        dropping=[],
        decision_safe=known.decided_to,
        topics=[
            KnownTopic(
                id=topic_id,
                name=store.names.get(topic_id, ""),
                accepted=end,
                dispatched=gone[topic_id].dispatched if topic_id in gone else 0,
                cancelled=gone[topic_id].cancelled if topic_id in gone else 0,
            )
            for topic_id, end in ends.items()
        ],
    )
