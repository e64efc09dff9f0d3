"""Sends a request to every broker group, and reports those that do not answer.

All groups are asked at once: those on the routes, and those that exist and are away. Who does not
answer is never left out in silence: either `Unavailable` names them, after all others were asked,
or (`missing` given) they are noted there by name, and the answers of the others are returned. A
group or topic that one broker group has not heard of yet is no error while another one knows it.
"""

import asyncio
from typing import TypeVar

import msgspec

from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import BadRequest, GroupNotFound, TernError, TopicNotFound, Unavailable
from ternmq.wire.messages.groups import Start
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

S = TypeVar("S", bound=Record)
AWAY = "it is not running, as far as the meta servers know"
ORDERS = frozenset(
    {
        Command.GROUP_CREATE,
        Command.GROUP_SET,
        Command.GROUP_DELETE,
        Command.GROUP_RESET,
        Command.GROUP_RETRY,
        Command.KEY_RESUME,
        Command.CONSUMER_PAUSE,
        Command.DEAD_RECALL,
    }
)
"""What changes something; the others only ask."""
LOOK_S = 0.05
Missing = dict[str, str]
"""Broker groups that did not answer, and why."""


class FanOut:
    """The broker groups of a cluster, asked together."""

    def __init__(
        self, cluster: Cluster, missing: Missing | None = None, *, replicas: bool = False
    ) -> None:
        """`replicas`: where nobody leads a replica is asked; for questions that it answers."""
        self._replicas = replicas
        self._cluster = cluster
        self.missing = missing

    async def groups(self) -> list[str]:
        """All that hold messages, by name; also those that cannot be asked at present."""
        there, away = self._cluster.masters(), self._cluster.away("realtime")
        if not there and not away:
            there = await self._cluster.some_masters()
        return sorted({*there, *away})

    async def only(self, what: str, broker_group: str = "") -> str:
        """The group that was named, or the only one there is; what is meant must be clear."""
        groups = await self.groups()
        if broker_group:
            if broker_group not in groups:
                raise BadRequest(
                    f"there is no broker group {broker_group!r}; there are: {', '.join(groups)}"
                )
            return broker_group
        if len(groups) > 1:
            raise BadRequest(
                f"{what} belongs to one broker group, and there are several "
                f"({', '.join(groups)}): say which, by broker_group"
            )
        return groups[0]

    async def chosen(self, start: Start, broker_group: str = "") -> list[str]:
        """The groups to ask about a start: a sequence means nothing without its broker group."""
        if start.at == "sequence" or broker_group:
            return [await self.only(f"sequence {start.value}", broker_group)]
        return await self.groups()

    async def ask(
        self,
        command: Command,
        record: Record,
        answer: type[T],
        groups: list[str] | None = None,
    ) -> dict[str, T]:
        """Answers by broker group; at least one, unless all are missing and that is tolerated."""
        answers, absent = await self.try_all(command, record, answer, groups)
        if not answers and absent:
            raise next(iter(absent.values()))
        return answers

    async def try_all(
        self,
        command: Command,
        record: Record,
        answer: type[T],
        groups: list[str] | None = None,
    ) -> tuple[dict[str, T], dict[str, TernError]]:
        """Answers, and the groups that do not know the topic or consumer group."""
        asked = await self.groups() if groups is None else groups
        found = await asyncio.gather(
            *(self._one(group, command, record, answer) for group in asked)
        )
        answers: dict[str, T] = {}
        absent: dict[str, TernError] = {}
        silent: Missing = {}
        for group, reply in zip(asked, found, strict=True):
            if isinstance(reply, GroupNotFound | TopicNotFound):
                absent[group] = reply
            elif isinstance(reply, Unavailable):
                silent[group] = reply.message
            elif isinstance(reply, TernError):
                raise reply
            else:
                answers[group] = reply
        self.lack(silent, done=sorted(answers), order=command in ORDERS)
        return answers, absent

    async def first(
        self, command: Command, record: Record, answer: type[T], elsewhere: type[TernError]
    ) -> T:
        """From the one group that has it; the others say `elsewhere`. Not hearing all of them is
        not the same as nobody having it."""
        nowhere: TernError | None = None
        silent: Missing = {}
        for group in await self.groups():
            reply = await self._one(group, command, record, answer)
            if isinstance(reply, Unavailable):
                silent[group] = reply.message
            elif isinstance(reply, elsewhere):
                nowhere = reply
            elif isinstance(reply, TernError):
                raise reply
            else:
                return reply
        if silent:
            raise not_answered(silent, [])
        assert nowhere is not None
        raise nowhere

    def lack(self, silent: Missing, *, done: list[str], order: bool = False) -> None:
        """Some did not answer: note it, or raise."""
        if not silent:
            return
        if self.missing is not None:
            self.missing.update(silent)
            return
        raise not_answered(silent, done, order=order)

    async def _one(
        self, group: str, command: Command, record: Record, answer: type[T]
    ) -> "T | TernError":
        cluster = self._cluster
        try:
            if not self._led_by_nobody(group):
                if self._is_away(group):
                    await self._back(group)
                return await cluster.ask(cluster.broker(group), command, record, answer)
        except TernError as error:
            # Its master may be dead without anybody having noticed before.
            if not isinstance(error, Unavailable) or not self._led_by_nobody(group):
                return error
        try:
            return await cluster.ask(cluster.reader(group), command, record, answer)
        except TernError as error:
            return error

    def _led_by_nobody(self, group: str) -> bool:
        """And a replica may answer instead."""
        return self._replicas and self._is_away(group) and self._cluster.has_replica(group)

    def _is_away(self, group: str) -> bool:
        return group not in self._cluster.masters() and group in self._cluster.away("realtime")

    async def _back(self, group: str) -> None:
        """Another member may be about to lead: wait for as long as a request may take, unless the
        caller can do without."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + (self._cluster.timeout if self.missing is None else 0)
        while self._is_away(group):
            if loop.time() >= give_up:
                raise Unavailable(AWAY)
            await asyncio.sleep(LOOK_S)


def not_answered(silent: Missing, done: list[str], *, order: bool = False) -> Unavailable:
    silent_groups = "; ".join(
        f"broker group {group!r}: {why}" for group, why in sorted(silent.items())
    )
    rest = f" (there: {', '.join(done)})" if done else ""
    if order and done:
        rest = f"; it is done on {', '.join(done)} only: repeat it when all are there"
    return Unavailable(f"no answer of {silent_groups}{rest}", missing=sorted(silent))


def named(group: str, record: S) -> S:
    """The record with the broker group it comes from."""
    return msgspec.structs.replace(record, broker_group=group)
