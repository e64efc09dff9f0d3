"""The file `unclean`: there while a store is open, so a start that finds it comes after a crash.

It is a text for people, and says one thing for the next start: whether this store answered for
bytes before they were on its disk (*forgetful*: flush = "async", or a replica that answers from
memory). After a crash such a store may lack what others believe it has.
"""

from ternmq.storage.files.disk import Disk
from ternmq.storage.files.paths import Paths

PLAIN = b"a broker runs here, or crashed\n"
FORGETFUL = b"what it answered for may not have been on its disk\n"


def note(disk: Disk, paths: Paths, *, forgetful: bool, keep: bool = False) -> None:
    """A store is, or was, open here; blocks. With `keep` it stays forgetful if it was."""
    forgetful = forgetful or (keep and crashed_forgetful(disk, paths))
    disk.write_atomic(paths.unclean, PLAIN + (FORGETFUL if forgetful else b""))


def crashed_forgetful(disk: Disk, paths: Paths) -> bool:
    """Asked before a store is opened: it may have lost what it answered for."""
    return disk.exists(paths.unclean) and FORGETFUL in disk.read(paths.unclean)
