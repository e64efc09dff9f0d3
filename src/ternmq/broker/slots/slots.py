"""Order-key slots on one broker: which are stored here, and which rows wait for another broker.

A batch with order keys is stored only while all their slots are ours (`enter`); a slot that closes
is refused at once, and when the last batch that had entered is safe, the registry is told that we
have stopped. From then on nothing of the slot is stored here, through restarts too: a broker reads
the placement from the registry before it serves, and takes no older one than it knows
(`known_placement`).

Rows of a slot whose former owner may still have unsettled rows are held back from ordered groups
(`held`), each group by itself, until the former owner says that this group has settled them there
(`open`); when all have, the registry is told, and the slot may move again. Where the rows of a slot
ended on a former owner is in memory only: after a restart it is where its topic ends then, which is
never too early. A slot of which an open transaction has rows is not settled before that has ended.

Unordered messages and groups never come here. See docs/decisions/0012-order-key-slots.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from ternmq.batch.view import BatchView
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.slots.known_placement import KnownPlacement
from ternmq.broker.slots.open_transactions import OpenTransactionSlots
from ternmq.broker.slots.peer_brokers import PeerBrokers
from ternmq.core.errors import Moved, TernError
from ternmq.core.lifecycle import Pulse
from ternmq.core.log import LogThrottle, get_logger
from ternmq.core.slots import SLOTS, slot_of
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.wire.messages.order_keys import PlaceChange, Placement, SlotsFind, SlotsOpen
from ternmq.wire.messages.topics import Topic

LOOK_S = 0.1
SETTLED_S = 0.5
"""How often is asked whether a former owner's rows are done with."""
NONE: frozenset[int] = frozenset()

log = get_logger()


class Slots:
    """The slots of one broker."""

    def __init__(
        self,
        *,
        places: KnownPlacement,
        groups: ConsumerGroups,
        consume: ConsumeLog,
        peer_brokers: PeerBrokers,
        feed: Callable[[ConsumerGroup], None],
        progress_durable: Callable[[], Awaitable[None]],
        open_transactions: OpenTransactionSlots,
    ) -> None:
        self._own = peer_brokers.own
        self._places = places
        self._groups = groups
        self._consume = consume
        self._peer_brokers = peer_brokers
        self._feed = feed
        self._progress_durable = progress_durable
        self._open_transactions = open_transactions
        self._placement = Placement()
        self._here: frozenset[int] = NONE
        self._former: dict[int, str] = {}
        """Slots of ours that are behind, and behind whom."""
        self._cleared: dict[int, set[int]] = {}
        """By group id: slots that this group has settled on their former owners."""
        self._ends: dict[int, dict[int, int]] = {}
        """By slot that we gave up: where each topic ended then, at the earliest."""
        self._inside: dict[int, None] = {}
        self._ticket = 0
        self._asked_at = 0.0
        self._log_throttle = LogThrottle()

    async def start(self) -> None:
        """The placement as the registry has it; memory may be older than what we said before."""
        self._learn(await self._places.first())

    async def close(self) -> None:
        await self._peer_brokers.close()

    # Storing.

    @property
    def assigned(self) -> bool:
        """Do slots have owners?"""
        self._look()
        return bool(self._placement.owners)

    async def assign(self) -> None:
        """A producer sends with an order key for the first time ever."""
        placed = await self._places.place(PlaceChange(action="assign", broker_group=self._own))
        self._learn(placed.placement)

    def enter(self, topic: Topic, batch: bytearray | memoryview) -> int:
        """A ticket for a batch with order keys; raises `Moved`. `leave` when it is safe or not."""
        self._look()
        if len(self._here) < SLOTS:
            keys = {key for key in BatchView(batch).order_keys() if key is not None}
            away = [key for key in keys if slot_of(topic.name, key) not in self._here]
            if away:
                raise Moved(
                    f"the slot of order key {away[0]!r} is not on broker group {self._own!r} (any "
                    "more); ask for the routes and send it where they say",
                    version=self._placement.version,
                )
        self._ticket += 1
        self._inside[self._ticket] = None
        return self._ticket

    def leave(self, ticket: int) -> None:
        self._inside.pop(ticket, None)

    # Handing out.

    def held(self, group: ConsumerGroup) -> Collection[int]:
        """Slots of which this ordered group gets nothing yet."""
        self._look()
        if not self._former or group.beside:
            return NONE
        cleared = self._cleared.get(group.id)
        return self._former.keys() - cleared if cleared else self._former.keys()

    async def open(self, find: SlotsFind) -> SlotsOpen:
        """Which of these slots has a group not settled here? Asked by their new owner, who then
        hands out what follows: so what is settled must stay so, whoever leads here next."""
        staged = await self._open_transactions.of_open()
        found = self._open(find)
        if len(found.slots) == len(find.slots):
            return found
        await self._progress_durable()
        return SlotsOpen(slots=sorted({*found.slots, *staged.intersection(find.slots)}))

    def committed(self) -> None:
        """A transaction has ended: rows may have come to slots that were given up before."""
        for slot in self._ends.keys() & self._open_transactions.slots:
            del self._ends[slot]

    def _open(self, find: SlotsFind) -> SlotsOpen:
        self._look()
        ours = [slot for slot in find.slots if self._may_store(slot)]
        given_up = [slot for slot in find.slots if not self._may_store(slot)]
        if not find.group:
            return SlotsOpen(slots=[*ours, *self._unsettled_by_anybody(given_up)])
        topic = self._places.topic(find.topic)
        if topic is None:
            return SlotsOpen(slots=ours)
        group = self._groups.find(topic.id, find.group)
        if group is not None:
            return SlotsOpen(slots=[*ours, *self._unsettled(group, given_up)])
        first, end = self._consume.bounds(topic.id)
        # A consumer joins all brokers, one after the other: this group may come yet.
        return SlotsOpen(slots=find.slots if end > first else ours)

    def _may_store(self, slot: int) -> bool:
        owners = self._placement.owners
        return bool(owners) and self._placement.groups[owners[slot]] == self._own

    def _unsettled(self, group: ConsumerGroup, slots: Collection[int]) -> set[int]:
        lane, order = group.lane, group.order
        gap = lane.done.first_gap(lane.start)
        waiting = {slot for slot in slots if gap < self._end(slot, group.topic_id)}
        if not waiting or order is None:
            return waiting
        unknown = {s for s in waiting if order.scanned < self._end(s, group.topic_id)}
        heads = order.heads()
        known = {slot_of(group.topic, key): head for key, head in heads.items()}
        return unknown | (waiting & known.keys())

    def _unsettled_by_anybody(self, slots: Collection[int]) -> set[int]:
        """A group that nobody runs now may be an ordered one."""
        found: set[int] = set()
        for group in self._groups:
            unordered = group.consumers and group.order is None
            if not (unordered or group.beside or group.topic.startswith("%")):
                found |= self._unsettled(group, set(slots) - found)
        return found

    def _end(self, slot: int, topic_id: int) -> int:
        if slot not in self._ends:
            self._mark([slot])
        return self._ends[slot].get(topic_id, 0)

    def _mark(self, slots: Collection[int]) -> None:
        ends = {topic_id: self._consume.bounds(topic_id)[1] for topic_id in self._consume.ends}
        self._ends |= dict.fromkeys(slots, ends)

    # What the registry says.

    def _look(self) -> None:
        placement = self._places.placement()
        if placement is not None and placement.version > self._placement.version:
            self._learn(placement)

    def _learn(self, placement: Placement) -> None:
        if placement.version <= self._placement.version:
            return
        self._placement = placement
        names = placement.groups
        self._here = frozenset(s for s in range(SLOTS) if placement.owner(s) == self._own)
        self._former = {
            slot: names[at] for slot, at in placement.behind.items() if slot in self._here
        }
        for slot in self._ends.keys() & self._here:
            del self._ends[slot]
        for cleared in self._cleared.values():
            cleared.intersection_update(self._former)

    # Step by step.

    async def run(self, pulse: Pulse) -> None:
        """Give up what closes; ask for what waits, beside it: who is asked may be away."""
        steps = (
            (self._closes, self._stop_storing),
            (self._waits, self._ask),
            (lambda: self._places.is_behind(self._placement), self._keep),
        )
        async with asyncio.TaskGroup() as tasks:
            for is_due, step in steps:
                tasks.create_task(_again_and_again(pulse, is_due, step), name="tern-slots")

    async def _keep(self) -> None:
        self._learn(await self._places.keep(self._placement))

    def _waits(self) -> bool:
        """Is a slot with a former owner, or has a group rows that are held back? Also when the last
        former owner is done: what a group got to know after that waits as well."""
        return bool(self._former) or any(
            group.order is not None and group.order.held for group in self._ordered()
        )

    async def _ask(self) -> None:
        for group in self._ordered():
            if group.order is not None and group.order.held:
                await self._clear(group, group.order)
        loop = asyncio.get_running_loop()
        if self._former and loop.time() - self._asked_at >= SETTLED_S:
            await self._settle()
            self._asked_at = loop.time()

    def _ordered(self) -> list[ConsumerGroup]:
        return [group for group in self._groups if group.order is not None and not group.beside]

    def _closes(self) -> bool:
        self._look()
        return any(self._may_store(slot) for slot in self._placement.closing)

    async def _stop_storing(self) -> None:
        """Steps 1 and 2 of `meta.placement`."""
        closing = [slot for slot in self._placement.closing if self._may_store(slot)]
        last = self._ticket
        while any(ticket <= last for ticket in self._inside):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S / 10)
        await (
            self._open_transactions.of_open()
        )  # What is staged by now may be committed behind the mark.
        self._mark(closing)
        wanted = PlaceChange(action="stopped", broker_group=self._own, slots=closing)
        self._learn((await self._places.place(wanted)).placement)
        log.info("slots given up", slots=len(closing), version=self._placement.version)

    async def _clear(self, group: ConsumerGroup, order: KeyOrder) -> None:
        """Ask former owners for a group that has rows held back."""
        waiting = set(order.held).intersection(self.held(group))
        for former, slots in self._by_former(waiting).items():
            find = SlotsFind(topic=group.topic, group=group.name, slots=slots)
            settled = set(slots) - await self._still_open(former, find)
            self._cleared.setdefault(group.id, set()).update(settled & self._former.keys())
        if group.order is order and order.let_go(self.held(group)):
            self._feed(group)

    async def _settle(self) -> None:
        """Step 3: no ordered group, neither there nor here, waits for these slots any more.

        Groups are asked for by name: one that is here may be about to join there.
        """
        for former, slots in self._by_former(self._former).items():
            names = {(group.topic, group.name) for group in self._ordered()}
            still: set[int] = set()
            for topic, name in [("", ""), *sorted(names)]:
                find = SlotsFind(topic=topic, group=name, slots=slots)
                still |= await self._still_open(former, find)
                if still.issuperset(slots):
                    break
            settled = [slot for slot in slots if slot not in still]
            if settled:
                wanted = PlaceChange(action="settled", broker_group=former, slots=settled)
                self._learn((await self._places.place(wanted)).placement)

    async def _still_open(self, former: str, find: SlotsFind) -> set[int]:
        """All of them while nobody answers: what is there may come first."""
        try:
            return set((await self._peer_brokers.open_slots(former, find)).slots)
        except TernError as error:
            event = "a former owner does not answer"
            if self._log_throttle.due(event, error.message, asyncio.get_running_loop().time()):
                log.info(event, group=former, reason=error.message)
            return set(find.slots)

    def _by_former(self, slots: Collection[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for slot in sorted(slots):
            if slot in self._former:
                found.setdefault(self._former[slot], []).append(slot)
        return found


async def _again_and_again(
    pulse: Pulse, is_due: Callable[[], bool], step: Callable[[], Awaitable[None]]
) -> None:
    seldom = LogThrottle()
    while True:
        await pulse.until(is_due, after_s=LOOK_S)
        try:
            await step()
            seldom.over()
        except TernError as error:
            if seldom.due("slots wait", error.message, asyncio.get_running_loop().time()):
                log.info("slots wait", reason=error.message)
