"""Who has to have a byte before it counts: the in-sync set as its master sees it. Pure.

The set itself is in the registry and changes only by compare-and-set on its version. Between
sending such a change and knowing what became of it both outcomes are possible, so the master
requires everybody who is in the old set or in the new one:

1. A member that is added is required before the change is sent; one that is removed until it is
   known to be removed.
2. A change without an answer is not over: it may still be carried out later, as long as the version
   it was made for is the current one. It is sent again until a newer version is known.
3. A member is added only while it has all that is safe, and removed only when enough are left.

So whoever the registry names has everything that was acknowledged, and may lead.

A master that answers before its replicas have it (`replica_ack = "none"`) says so in the registry
before it does (`waits`), by the same rules: as long as it may be known otherwise it waits. The set
then names those that are near, and whoever leads after it may lack something.

No clock, no I/O: moments are handed in (seconds that only grow), members are names of sixteen
characters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ternmq.core.units import MIB
from ternmq.replication.config import ReplicaLost

BEHIND_MAX = 64 * MIB
"""Of a log, for a member of the set of a master that does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMember:
    """The group's standing as the registry had it last."""

    version: int
    in_sync: frozenset[str]
    members: frozenset[str]
    waits: bool = True
    """What is acknowledged is with the whole set."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of the set that was sent, or is about to be."""

    in_sync: frozenset[str]
    version: int
    """It is carried out only while this is the current one."""
    waits: bool = True


@dataclass(slots=True)
class Copy:
    """How far a member is, by log number, and since when it has stood still."""

    ends: dict[int, int] = field(default_factory=dict)
    connected: bool = False
    moved_at: float = 0.0
    best: dict[int, int] = field(default_factory=dict)
    """How far it ever was: coming again is no step forward."""

    def has(self, marks: Mapping[int, int]) -> bool:
        return self.near(marks, 0)

    def near(self, marks: Mapping[int, int], behind: int) -> bool:
        return all(self.ends.get(log, -1 - behind) + behind >= mark for log, mark in marks.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an operator wants of a master with replicas."""

    lost: ReplicaLost = ReplicaLost.READ_ONLY
    timeout: float = 3.0
    """Seconds without a step after which a member is late."""
    wait: bool = True
    """A message counts when the set has it; else when the master has."""


class InSync:
    """The in-sync set during one leadership."""

    def __init__(self, me: str, known: KnownMember, rules: Rules, *, now: float) -> None:
        self._me = me
        self._wait = rules.wait
        self._behind = 0 if rules.wait else BEHIND_MAX
        self._known = known
        self._policy = rules.lost
        self._timeout = rules.timeout
        self._proposal: Proposal | None = None
        self.copies: dict[str, Copy] = {}
        """Members that are connected or required; never this one."""
        self.required: frozenset[str] = frozenset()
        """Everybody else who must have a byte before it counts."""
        self.waits = True
        """Messages count when every required member has them: so it is set here, or somebody may
        believe it."""
        self._require()
        self._expect(now)

    @property
    def known(self) -> KnownMember:
        return self._known

    @property
    def proposal(self) -> Proposal | None:
        """Sent and not known to be decided."""
        return self._proposal

    def _require(self) -> None:
        """The registry said something, or a proposal was made: asked about at every round, so
        worked out only here."""
        known, proposal = self._known, self._proposal
        everybody, believed = known.in_sync, known.waits
        if proposal is not None:
            everybody |= proposal.in_sync
            believed = believed or proposal.waits
        self.required = everybody - {self._me}
        self.waits = self._wait or believed

    def learn(self, known: KnownMember, now: float) -> bool:
        """The registry says so; False if that is old news."""
        if known.version < self._known.version:
            return False
        self._known = known
        if self._proposal is not None and known.version > self._proposal.version:
            self._proposal = None
        self._require()
        self._expect(now)
        return True

    def _expect(self, now: float) -> None:
        for member in self.required:
            self.copies.setdefault(member, Copy(moved_at=now))

    def give_up_on(self, member: str) -> None:
        """A member led before and is not here: nobody waits for it until it comes."""
        if member in self.copies and not self.copies[member].connected:
            self.copies[member].moved_at = float("-inf")

    # -- what members say

    def came(self, member: str, now: float) -> Copy:
        """A member follows: what it has is not known yet. One that comes again and again and takes
        nothing (a full disk) has to become late all the same."""
        before = self.copies.get(member)
        if before is not None and before.best and member in self.required:
            copy = Copy(connected=True, moved_at=before.moved_at, best=before.best)
        else:
            copy = Copy(connected=True, moved_at=now)
        self.copies[member] = copy
        return copy

    def gone(self, member: str) -> None:
        copy = self.copies.get(member)
        if copy is None:
            return
        copy.connected = False
        if member not in self.required:
            del self.copies[member]

    def holds(self, member: str, log: int, end: int, now: float) -> None:
        copy = self.copies[member]
        copy.ends[log] = max(end, copy.ends.get(log, -1))
        if end > copy.best.get(log, -1):
            copy.best[log] = end
            if self._wait:  # Else being near is what counts: nobody holds the master back.
                copy.moved_at = now

    # -- what follows from it

    def mark(self, log: int, written: int) -> int:
        """Up to here every required member has the log."""
        lowest = written
        for member in self.required:
            lowest = min(lowest, self.copies[member].ends.get(log, 0))
        return lowest

    def look(self, now: float, written: Mapping[int, int]) -> None:
        """Note who has nothing to do: standing still is no fault then."""
        for copy in self.copies.values():
            if copy.connected and copy.near(written, self._behind):
                copy.moved_at = now

    def late(self, now: float) -> frozenset[str]:
        """Required, and without a step forward for too long."""
        return frozenset(
            member for member in self.required if now - self.copies[member].moved_at > self._timeout
        )

    @property
    def needed(self) -> int:
        """How many members a message has to be on."""
        goes_on = self._policy is ReplicaLost.CONTINUE or not self._wait
        return 1 if goes_on or len(self._known.members) <= 1 else 2

    def propose(
        self, now: float, safe: Mapping[int, int], *, at_least: int | None = None
    ) -> Proposal | None:
        """The change that is due, and from now on required; None if there is none. One that was
        sent before and is not decided comes again. `at_least` so many members stay."""
        if self._proposal is not None:
            return self._proposal
        in_sync = self._known.in_sync
        late = self.late(now)
        left = in_sync - late
        if late and len(left) >= (self.needed if at_least is None else at_least):
            return self._send(left, safe)
        ready = {
            member
            for member, copy in self.copies.items()
            if member not in in_sync
            and copy.connected
            and copy.near(safe, self._behind)
            and now - copy.moved_at <= self._timeout  # Not one that would leave again at once.
        }
        ready &= self._known.members
        if ready or self._waiting(in_sync, safe) is not self._known.waits:
            return self._send(in_sync | ready, safe)
        return None

    def _waiting(self, in_sync: Iterable[str], safe: Mapping[int, int]) -> bool:
        """What can be said of such a set; that it waits only once all of it has all that counts."""
        others = frozenset(in_sync) - {self._me}
        return self._wait and (
            self._known.waits or all(self.copies[other].has(safe) for other in others)
        )

    def _send(self, in_sync: Iterable[str], safe: Mapping[int, int]) -> Proposal:
        everybody = frozenset(in_sync) | {self._me}
        waits = self._waiting(everybody, safe)
        self._proposal = Proposal(everybody, self._known.version, waits)
        self._require()
        return self._proposal

    def refusal(self, now: float) -> str | None:
        """Why messages are not taken at the moment, and what to do; None if they are."""
        if not self.waits:
            return None
        if len(self._known.in_sync) < self.needed:
            return (
                f"{len(self._known.in_sync)} of {len(self._known.members)} servers of this broker "
                "group are in step and messages have to be on 2: start a replica, or set "
                'replica_lost = "continue" to take messages with one'
            )
        late = self.late(now)
        if late:
            return (
                f"{len(late)} replica(s) in the in-sync set do not answer: start them again, or "
                'set replica_lost = "continue" to go on without'
            )
        return None
