"""What a simulated cluster was told and has told, kept outside of it: the checker's own books.

Bodies are unique, so a message is known by its body wherever it turns up. The rules (peers.md 4.3):
every acknowledged send is there once, at the place that was told, and every group has acked it or
finds it among its dead letters; nothing is there that nobody sent, or that was refused; with an
order key, nobody sees a message before every earlier one of the key was acked; the ledger of every
lane adds up; repeats are explained by faults.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ternmq.client.model.delivery import Fence
from ternmq.client.model.message import Message
from ternmq.core.errors import DiskFull, OverLimit, ReadOnly, TernError
from ternmq.wire.messages.groups import LedgerLine

DEFINITE = (DiskFull, OverLimit, ReadOnly)
REPEATS_PER_FAULT = 200


@dataclass(frozen=True, slots=True)
class Sent:
    topic: str
    order_key: str | None
    number: int


@dataclass(slots=True)
class Place:
    broker_group: str
    topic: str
    sequence: int

    @property
    def lane(self) -> tuple[str, str]:
        return self.broker_group, self.topic


@dataclass(slots=True)
class Journal:
    """All of one run."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    stored: dict[bytes, Place] = field(default_factory=dict)
    refused: dict[bytes, str] = field(default_factory=dict)
    unknown: dict[bytes, str] = field(default_factory=dict)
    acked: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    rejecting: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    rejected: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    deliveries: dict[str, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    asked_again: dict[str, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    places: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    operated: list[str] = field(default_factory=list)
    by_key: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Stored bodies of an order key, in the order in which they were acknowledged."""
    leases: dict[tuple[str, int], str] = field(default_factory=dict)
    fences: dict[tuple[str, str, str], tuple[Fence, str]] = field(default_factory=dict)
    """By group, broker group and order key: the last hand-out that somebody began, and who."""
    """Of each broker group, and who got it."""
    halves: dict[str, list[bytes]] = field(default_factory=dict)
    """Bodies of transactions, by their ids."""
    decided: dict[str, bool] = field(default_factory=dict)
    """Transactions: committed or not, whether the broker knows it yet or not."""
    committed: set[str] = field(default_factory=set)
    """Transactions whose commit was acknowledged."""
    due: dict[bytes, float] = field(default_factory=dict)
    """Delayed bodies, and before which moment nobody may see them."""
    early_s: float = 0.0
    """How wrong the clocks of delay servers are."""
    kept: set[bytes] = field(default_factory=set)
    """Delayed bodies that were acknowledged."""
    cancelling: set[bytes] = field(default_factory=set)
    cancelled: set[bytes] = field(default_factory=set)
    unreadable: int = 0
    """So many acknowledged messages may be missing: a batch of a master whose log has a bad bit in
    a part that no start reads. Its replicas have it, but it goes on leading (not good enough)."""
    replaced: Callable[[], bool] = bool
    """The registry is not what it was: groups may begin anew, topics may have lost their names."""
    nameless: Callable[[], set[bytes]] = set
    """Bodies that lie in the logs, in topics without a name."""
    restored: bool = False
    """The cluster came out of a backup: what was told after it began may be there or not."""
    expires: bool = False
    """Old messages go, whether all groups had them or not."""
    may_be_damaged: Callable[[], int] = field(default=lambda: 0)
    """So many messages may have been damaged until now: an ordered group goes on without them."""
    passed_over: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    over: bool = False
    """Producers stop."""

    def told_so_far(self) -> "Journal":
        """What somebody knows for certain at this moment, and may be asked for."""
        return Journal(
            stored=dict(self.stored),
            acked=_copied(self.acked),
            rejected=_copied(self.rejected),
            by_key=defaultdict(list, {key: list(each) for key, each in self.by_key.items()}),
            committed=set(self.committed),
            kept=set(self.kept),
            cancelling=set(self.cancelling),
            cancelled=set(self.cancelled),
        )

    def begin_again(self, before: "Journal", after: "Journal") -> None:
        """With a backup that was begun and ended then: what was told before is there. What groups
        acked until its end may be acked; the rest comes, perhaps for the second time."""
        self.restored = True
        self.stored, self.by_key, self.kept = before.stored, before.by_key, before.kept
        self.rejected, self.committed = before.rejected, before.committed
        self.cancelled = before.cancelled  # Others were cancelled afterwards: they may come.
        self.acked = after.acked
        self.cancelling |= after.cancelling
        self.deliveries.clear()
        self.asked_again.clear()
        self.leases.clear()
        self.fences.clear()

    def body(self, topic: str, order_key: str | None, size: int) -> bytes:
        """A new message."""
        number = len(self.sent) + 1
        body = b"%d %s " % (number, topic.encode()) + b"x" * size
        self.sent[body] = Sent(topic, order_key, number)
        return body

    def told(self, body: bytes, place: Place) -> None:
        """A producer has its receipt."""
        self.stored[body] = place
        key = self.sent[body].order_key
        if key is not None:
            self.by_key[key].append(body)

    def failed(self, bodies: Iterable[bytes], error: TernError) -> None:
        where = self.refused if isinstance(error, DEFINITE) else self.unknown
        for body in bodies:
            where[body] = repr(error)

    def shown(self, who: str, group: str, message: Message, *, ordered: bool, now: float) -> bytes:
        """A consumer sees a message."""
        body = message.body
        early = self.due.get(body, now) - self.early_s - now
        assert early <= 0, f"{body[:40]!r} came {early:.3f} s before it was due"
        assert body not in self.cancelled, f"{body[:40]!r} was cancelled and came"
        lease = (message.broker_group, message.fence.lease)
        holder = self.leases.setdefault(lease, who)
        assert holder == who, f"lease {lease} went to {holder} and to {who}"
        assert body in self.sent, f"{group} got what nobody sent: {body[:60]!r}"
        sent = self.sent[body]
        assert sent.topic == message.topic, f"{body[:60]!r} came out of {message.topic}"
        self.deliveries[group][body] += 1
        self.rejected[group].discard(body)  # The lease was lost: the verdict came too late.
        if ordered and sent.order_key is not None:
            self._check_fence(who, group, message, sent.order_key)
            self._check_order(group, body, sent.order_key)
        return body

    def _check_fence(self, who: str, group: str, message: Message, key: str) -> None:
        """Nobody begins a message of a key when another has begun one that was handed out later."""
        place = (group, message.broker_group, key)
        fence, holder = self.fences.get(place, (message.fence, who))
        assert message.fence >= fence or holder == who, (
            f"{who} begins a message of {key} by {message.fence}, after {holder} did by {fence}"
        )
        self.fences[place] = max((message.fence, who), (fence, holder))

    def _check_order(self, group: str, body: bytes, key: str) -> None:
        """Every message of the key that was acknowledged before this one was sent is acked."""
        for earlier in self.by_key[key]:
            if self.sent[earlier].number >= self.sent[body].number:
                break
            if earlier not in self.acked[group] and not self.replaced() and not self.expires:
                self.passed_over[group].add(earlier)
                assert len(self.passed_over[group]) <= self.may_be_damaged(), (
                    f"{group} got {body[:40]!r} of key {key} before {earlier[:40]!r} was acked"
                )

    # At the end.

    def check_log(self, found: list[tuple[Place, bytes]]) -> None:
        """Everything that can be read, of all broker groups and topics."""
        where: dict[bytes, Place] = {}
        for place, body in found:
            assert body in self.sent, f"nobody sent what is at {place}: {body[:60]!r}"
            again = self.restored and body in self.due  # Sent out while the backup was taken.
            assert body not in where or again, f"{body[:40]!r} twice: {where[body]} and {place}"
            assert body not in self.refused, f"{place} was refused: {self.refused[body]}"
            where[body] = place
        missed, nameless, firsts = 0, self.nameless(), _firsts(where.values())
        for body, place in self.stored.items():
            # Of a topic without a name nobody can say what retention took.
            if body not in where and (body in nameless or (self.expires and self.replaced())):
                continue
            if self.expires and place.sequence < firsts.get(place.lane, place.sequence + 1):
                assert body not in where, f"{body[:40]!r} is at {where[body]}, not at {place}"
                continue
            missed += body not in where
            assert where.get(body) == place or 0 < missed <= self.unreadable, (
                f"{body[:40]!r} was acknowledged at {place} and is at {where.get(body)}"
            )

        came = self.cancelled & where.keys()
        assert not came, f"cancelled and there: {_some(came)}"
        for transaction, bodies in self.halves.items():
            there = [body in where for body in bodies]
            wanted = self.decided.get(transaction, False)
            told = not self.restored or transaction in self.committed
            excused = self.unreadable or self.expires or not told
            assert all(one is wanted for one in there) or (wanted and excused), (
                f"transaction {transaction}: committed is {wanted}, visible are {there}"
            )

    def missing(self, bodies: Iterable[bytes]) -> set[bytes]:
        """Delayed messages that should be among these and are not."""
        missing = self.kept - self.cancelling - set(bodies)
        return missing if len(missing) > self.unreadable else set()

    def check_group(self, group: str, bodies: set[bytes], dead: list[bytes]) -> None:
        """A group that has nothing left, and all that its topics hold."""
        if self.expires:  # Dead letters go like others.
            dead = [*dead, *self.rejecting[group]]
        if self.replaced():  # Dead letters may lie in a topic that has lost its name.
            dead = [*dead, *(self.rejecting[group] & self.nameless())]
        lost = bodies - self.acked[group] - set(dead)
        assert len(lost) <= self.unreadable, f"{group} never settled {_some(lost)}"
        never = set(dead) - self.rejecting[group]
        assert not never, f"{group} has dead letters nobody rejected: {_some(never)}"
        missing = self.rejected[group] - set(dead)
        assert not missing, f"{group} was told that these are dead: {_some(missing)}"

    def check_expired(
        self, group: str, topics: Collection[str], there: set[bytes], lines: Iterable[LedgerLine]
    ) -> None:
        """What went before a group had settled it is in its ledger as expired, unless it went
        before there was the group; what it was handed was copied for it, as long as nobody lost
        what groups were handed."""
        own = [line for line in lines if line.group == group]
        starts = {(line.broker_group, line.topic): line.start for line in own if line.total}
        settled = self.acked[group] | self.rejecting[group] | there
        never = {
            body
            for body, place in self.stored.items()
            if place.topic in topics and place.sequence >= starts.get(place.lane, 0)
        } - settled
        expired = sum(line.expired for line in own)
        assert len(never) <= expired, f"{group}: {len(never)} are gone, {expired} expired"
        lost = never & self.deliveries[group].keys() if not self.faults else set()
        assert not lost or self.operated, f"{group} was handed these, and they went: {_some(lost)}"

    def check_repeats(self) -> None:
        """Faults may repeat messages, up to a bound; without faults there are none."""
        if self.replaced() or self.expires or self.restored:
            return
        allowed = REPEATS_PER_FAULT * (len(self.faults) + len(self.operated))
        for group, seen in self.deliveries.items():
            repeats = sum((seen - self.asked_again[group]).values()) - len(seen)
            assert repeats <= allowed, f"{group}: {repeats} repeats by {len(self.faults)} faults"


def _copied(sets: dict[str, set[bytes]]) -> dict[str, set[bytes]]:
    return defaultdict(set, {group: set(bodies) for group, bodies in sets.items()})


def _firsts(places: Iterable[Place]) -> dict[tuple[str, str], int]:
    """Where each topic begins, by what can be read of it."""
    firsts: dict[tuple[str, str], int] = {}
    for place in places:
        firsts[place.lane] = min(place.sequence, firsts.get(place.lane, place.sequence))
    return firsts


def _some(bodies: set[bytes]) -> list[bytes]:
    return [body[:30] for body in sorted(bodies)[:3]]


def check_ledger(line: LedgerLine) -> None:
    parts = (
        line.ready,
        line.in_flight,
        line.waiting_retry,
        line.acked,
        line.filtered,
        line.skipped,
        line.dead,
        line.expired,
    )
    assert line.total == sum(parts), line


def unsettled(line: LedgerLine) -> int:
    return line.ready + line.in_flight + line.waiting_retry
