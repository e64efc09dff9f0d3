"""A delay replica's store that gets its bytes from a master's store, without a network between."""

from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.delay.store.journal import Journal
from ternmq.delay.store.store import DelayStore
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.leader_epochs import common_end
from ternmq.storage.messages.message_log import MessageLog

Log = MessageLog | Journal


def logs(store: DelayStore) -> tuple[Log, Log]:
    return store.messages, store.decisions


def lead(store: DelayStore, epoch: int) -> None:
    """Become a master that needs nobody else."""
    store.begin_epoch(epoch)
    advance(store, store.messages.end, store.decisions.end)
    store.catch_up()


def parting(master: DelayStore, replica: DelayStore) -> list[int]:
    """Up to where both have the same of each log."""
    return [
        mine.end
        if mine.end == mine.start_offset
        else common_end(replica.tables()[log], mine.end, master.tables()[log], theirs.end)
        for log, (mine, theirs) in enumerate(zip(logs(replica), logs(master), strict=True))
    ]


def follow(master: DelayStore, replica: DelayStore) -> None:
    """Cut off what the master does not have, and take over its tables."""
    replica.truncate(*parting(master, replica))
    replica.adopt_epochs({log: list(table) for log, table in master.tables().items()})


def stream(master: DelayStore, replica: DelayStore, *, size: int = 1 << 20) -> None:
    """Everything the master has written, in pieces of `size` bytes that end anywhere."""
    for ours, theirs in zip(logs(replica), logs(master), strict=True):
        while data := theirs.read_raw(ours.received_end, size):
            ours.receive(ours.received_end, data)
        received = ours.take()
        if received is not None:
            ours.write_received(received, sync=True)


def advance(store: DelayStore, message_to: int, decision_to: int) -> None:
    while store.messages.advance(message_to):
        pass
    store.decisions.advance(decision_to)


def derive(store: DelayStore) -> None:
    """What the thread of a replica does."""
    while store.follow_some():
        pass


def copy(master: DelayStore, replica: DelayStore) -> None:
    """Until the replica has, and has made files of, everything that is safe on the master."""
    stream(master, replica)
    advance(replica, master.messages.safe_offset, master.decisions.safe_offset)
    derive(replica)


def checkpoint(store: DelayStore) -> None:
    """As `Standby` does it."""
    store.settle()
    now = store.snapshot()
    store.checkpoint(now)
    if store.known is now:
        store.dropping.difference_update(store.remove(now.dropping))
        store.trim()


def install(master: DelayStore, disk: Disk, paths: DelayPaths, *, piece: int = 1000) -> None:
    """A base, from the files of one to the directory of the other."""
    base = BootstrapFiles(master)
    try:
        installing = BootstrapInstall(disk, paths, base.manifest)
        for kind, hour, length in installing.files:
            for at in range(0, length, piece):
                installing.write(kind, hour, at, base.read(kind, hour, at, piece))
        installing.finish()
    finally:
        base.close()
