"""How a server that is a process of its own tells a meta server that it is there.

REGISTER is the announcement and the heartbeat: the same record again and again. A server that was
silent for `dead_after_ms` is taken off the routes; WITHDRAW does so at once.
"""

from ternmq.wire.messages.commands import Record, Route


class Register(Record, frozen=True):
    route: Route
    """Its role is worked out by the meta server when there is a member."""
    member: str = ""
    """The id by which it joined its broker group; empty: it joined none."""
    epoch: int = 0
    """It is ready to serve as master at this epoch; 0: as a replica."""


class Registered(Record, frozen=True):
    heartbeat_ms: int
    """Say it again this often."""
    dead_after_ms: int


class Withdraw(Record, frozen=True):
    route: Route
    for_good: bool = False
    """It holds nothing any more: do not remember it. Address and role do not matter then."""
    member: str = ""
