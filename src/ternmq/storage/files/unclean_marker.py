"""The file `unclean`: there while a store is open, so a start that finds it comes after a crash.

It is a text for people, and says one thing for the next start: whether this store answered for
bytes before they were on its disk (*acks from memory*: flush = "async", or a replica that answers
from memory). After a crash such a store may lack what others believe it has.
"""

from ternmq.storage.files.disk import Disk
from ternmq.storage.files.paths import Paths

PLAIN = b"a broker runs here, or crashed\n"
ACKS_FROM_MEMORY = b"what it answered for may not have been on its disk\n"


def note(disk: Disk, paths: Paths, *, acks_from_memory: bool, keep: bool = False) -> None:
    """A store is, or was, open here; blocks. With `keep`, one that acked from memory still did."""
    acks_from_memory = acks_from_memory or (keep and crashed_with_acks_from_memory(disk, paths))
    content = PLAIN + (ACKS_FROM_MEMORY if acks_from_memory else b"")
    if not disk.exists(paths.unclean) or disk.read(paths.unclean) != content:
        disk.write_atomic(paths.unclean, content)


def remove(disk: Disk, paths: Paths) -> None:
    """The store was closed in order; blocks."""
    if disk.exists(paths.unclean):
        disk.unlink(paths.unclean)
        disk.sync_dir(paths.directory)


def crashed_with_acks_from_memory(disk: Disk, paths: Paths) -> bool:
    """Asked before a store is opened: it may have lost what it answered for."""
    return disk.exists(paths.unclean) and ACKS_FROM_MEMORY in disk.read(paths.unclean)
