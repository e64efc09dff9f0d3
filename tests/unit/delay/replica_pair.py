"""A delay replica's store that gets its bytes from a master's store, without a network between."""

from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.delay.store.journal import Journal
from ternmq.delay.store.store import DelayStore
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.leader_epochs import common_end
from ternmq.storage.messages.message_log import MessageLog

Log = MessageLog | Journal


def logs(store: DelayStore) -> tuple[Log, Log]:
    return store.messages, store.decisions


def lead(following: FollowingStore, epoch: int) -> None:
    """Become a master that needs nobody else."""
    store = following.store
    store.begin_epoch(epoch)
    advance(following, store.messages.end, store.decisions.end)
    following.catch_up()


def parting(master: DelayStore, replica: FollowingStore) -> list[int]:
    """Up to where both have the same of each log."""
    return [
        mine.end
        if mine.end == mine.start_offset
        else common_end(replica.store.tables()[log], mine.end, master.tables()[log], theirs.end)
        for log, (mine, theirs) in enumerate(zip(logs(replica.store), logs(master), strict=True))
    ]


def follow(master: DelayStore, replica: FollowingStore) -> None:
    """Cut off what the master does not have, and take over its tables."""
    replica.store.truncate(*parting(master, replica))
    replica.store.adopt_epochs({log: list(table) for log, table in master.tables().items()})


def stream(master: DelayStore, replica: FollowingStore, *, size: int = 1 << 20) -> None:
    """Everything the master has written, in pieces of `size` bytes that end anywhere."""
    for ours, theirs in zip(logs(replica.store), logs(master), strict=True):
        while data := theirs.read_raw(ours.received_end, size):
            ours.receive(ours.received_end, data)
        received = ours.take()
        if received is not None:
            ours.write_received(received, sync=True)


def advance(following: FollowingStore, message_to: int, decision_to: int) -> None:
    while following.store.messages.advance(message_to):
        pass
    following.store.decisions.advance(decision_to)


def derive(following: FollowingStore) -> None:
    """What the thread of a replica does."""
    while following.follow_some():
        pass


def copy(master: DelayStore, replica: FollowingStore) -> None:
    """Until the replica has, and has made files of, everything that is safe on the master."""
    stream(master, replica)
    advance(replica, master.messages.safe_offset, master.decisions.safe_offset)
    derive(replica)


def checkpoint(following: FollowingStore) -> None:
    """As `Standby` does it."""
    store = following.store
    following.settle()
    now = following.snapshot()
    store.checkpoint(now)
    if store.known is now:
        following.remove(now.dropping)
        store.checkpoints.trim()


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
