"""Consumer groups: settings, consumers, order keys, backlog, resets and replays.

A group is on every broker group; orders go to all of them, and answers are put together or named by
their broker group.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ternmq.client.admin.merge_answers import ResetDone, merged_group, reset_done
from ternmq.client.admin.replay import Replay, ReplayProgress, run_replay
from ternmq.client.admin.settings import change_of
from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.start import StartLike, make_start
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named, not_answered
from ternmq.core.errors import AlreadyExists, BadRequest
from ternmq.wire.messages.groups import (
    Group,
    GroupCreate,
    GroupFind,
    GroupNamed,
    GroupReset,
    GroupResetDone,
    Groups,
    GroupSet,
    Ledger,
    LedgerLine,
    Start,
)
from ternmq.wire.messages.limits import ConsumerPause
from ternmq.wire.messages.order_keys import (
    GroupKeys,
    KeyResume,
    KeyResumed,
)
from ternmq.wire.messages.read import GroupRetried, GroupRetry
from ternmq.wire.messages.stats import (
    AllGroupFigures,
    GroupFigures,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record

GROUPS_PAGE = 200
"""Lanes in one answer of a broker."""
P = TypeVar("P", Groups, Ledger, AllGroupFigures)


def sessions_of(group: Group, prefix: str) -> set[str]:
    """Consumers of a group, also paused ones that are away, whose session begins so."""
    known = {member.session for member in group.members} | set(group.settings.paused_sessions)
    return {session for session in known if prefix and session.startswith(prefix.lower())}


@typed_calls
class GroupAdmin(AdminCalls):
    """Calls about consumer groups."""

    async def groups(self, topic: str = "", group: str = "") -> list[Group]:
        """Groups, of one topic or of one name, or all; one entry for each broker group.
        `merged_groups` adds them up."""
        find = GroupFind(topic=topic, group=group, limit=GROUPS_PAGE)
        pages = await self._pages(Command.GROUP_LIST, find, Groups)
        found = [named(name, each) for name, page in pages for each in page.groups]
        return sorted(found, key=lambda each: (each.broker_group, each.topic, each.name))

    async def create_group(
        self,
        topic: str,
        group: str,
        start: StartLike = "earliest",
        broker_group: str = "",
        exist_ok: bool = False,
    ) -> Group:
        """Make a group, on every broker group; with `exist_ok` one that is there stays as it is."""
        where = make_start(start)
        try:
            return await self._create_group(topic, group, where, broker_group)
        except AlreadyExists:
            if not exist_ok:
                raise
        await self._make_everywhere(topic, group)
        return merged_group(await self.groups(topic, group))

    async def _create_group(self, topic: str, group: str, where: Start, broker_group: str) -> Group:
        create = GroupCreate(topic=topic, group=group, start=where)
        if where.at != "sequence" and not broker_group:
            return await self._group_order(Command.GROUP_CREATE, create)
        # One sequence decides for its broker group; the others have the group from their beginning.
        chosen = await self._fan_out.chosen(where, broker_group)
        return await self._group_order(Command.GROUP_CREATE, create, chosen)

    async def delete_group(self, topic: str, group: str) -> None:
        wanted = GroupNamed(topic=topic, group=group)
        await self._fan_out.ask(Command.GROUP_DELETE, wanted, Record)

    async def set_group(self, topic: str, group: str, **changes: Any) -> Group:
        """Change settings: retry, attempts_max, ordered_attempts_max, paused, rate, bytes_rate,
        in_flight_max, consumer_in_flight_max, backlog_alarm, dead_letter_keep_ms, on_failure,
        priority, order. 0 is no limit. Rates and limits are those of each broker group. With order
        "keys" (or "none") only consumers that are ordered (or not) may join; empty: either may.
        """
        wanted = change_of(GroupSet, changes, topic=topic, group=group)
        await self._make_everywhere(topic, group)
        return await self._group_order(Command.GROUP_SET, wanted)

    async def group_keys(self, topic: str, group: str) -> GroupKeys:
        """Order keys that stand still, and whether a failing key holds back the whole group."""
        wanted = GroupNamed(topic=topic, group=group)
        answers = list((await self._fan_out.ask(Command.GROUP_KEYS, wanted, GroupKeys)).values())
        fullest = max(answers, key=lambda answer: answer.full_rows, default=GroupKeys(stopped=[]))
        return GroupKeys(
            stopped=[key for answer in answers for key in answer.stopped],
            stopped_count=sum(answer.stopped_count for answer in answers),
            full_since_ms=fullest.full_since_ms,
            full_key=fullest.full_key,
            full_rows=fullest.full_rows,
        )

    async def resume_key(
        self, topic: str, group: str, key: str | None = None, skip: bool = False
    ) -> int:
        """Let an order key that stands still go on (None: all of them): its message is tried again,
        or with `skip` becomes a dead letter. Returns how many messages that concerned."""
        wanted = KeyResume(topic=topic, group=group, key=key, skip=skip)
        answers = await self._fan_out.ask(Command.KEY_RESUME, wanted, KeyResumed)
        return sum(answer.rows for answer in answers.values())

    async def pause_consumer(
        self, topic: str, group: str, session: str, paused: bool = True
    ) -> Group:
        """Hand nothing out to one consumer, or go on; `session` as in `Group.members`."""
        found = await self.groups(topic, group)
        known = {each.broker_group: sessions_of(each, session) for each in found}
        whole = {one for sessions in known.values() for one in sessions}
        if found and len(whole) != 1:
            raise BadRequest(
                f"{len(whole)} consumers have a session that begins with {session!r}; "
                "'tern group show' lists them"
            )
        wanted = ConsumerPause(topic=topic, group=group, session=session, paused=paused)
        chosen = [name for name, sessions in known.items() if sessions] or None
        return await self._group_order(Command.CONSUMER_PAUSE, wanted, chosen)

    async def group_figures(self, topic: str = "", group: str = "") -> list[GroupFigures]:
        """Backlog in messages and time, rates and alarm, of each lane on each broker group."""
        find = GroupFind(topic=topic, group=group, limit=GROUPS_PAGE)
        pages = await self._pages(Command.GROUP_FIGURES, find, AllGroupFigures)
        found = [named(name, each) for name, page in pages for each in page.groups]
        return sorted(found, key=lambda each: (each.broker_group, each.topic, each.group))

    async def reset_group(
        self,
        topic: str,
        group: str,
        start: StartLike,
        dry_run: bool = False,
        broker_group: str = "",
    ) -> ResetDone:
        """Let a group go on from another place; says how many come again and how many never."""
        where = make_start(start)
        reset = GroupReset(topic=topic, group=group, start=where, dry_run=dry_run)
        chosen = await self._fan_out.chosen(where, broker_group)
        return reset_done(
            await self._fan_out.ask(Command.GROUP_RESET, reset, GroupResetDone, chosen)
        )

    async def retry_group(self, topic: str, group: str, dry_run: bool = False) -> int:
        """What waits for a retry is ready at once, as attempt 1; returns how many messages."""
        wanted = GroupRetry(topic=topic, group=group, dry_run=dry_run)
        answers = await self._fan_out.ask(Command.GROUP_RETRY, wanted, GroupRetried)
        return sum(answer.rows for answer in answers.values())

    async def replay(
        self, wanted: Replay, told: Callable[[ReplayProgress], None] = lambda _: None
    ) -> ReplayProgress:
        """Copy messages into one group's private lane; `told` is called after every step."""
        await self._make_everywhere(wanted.topic, wanted.into)
        return await run_replay(self._cluster, wanted, told)

    async def ledger(self, topic: str = "", group: str = "") -> list[LedgerLine]:
        """Where every message is, as the groups see it: a line for each lane on each broker group.
        `merged_lines` adds them up."""
        find = GroupFind(topic=topic, group=group, limit=GROUPS_PAGE)
        pages = await self._pages(Command.LEDGER, find, Ledger)
        found = [named(name, line) for name, page in pages for line in page.lines]
        return sorted(found, key=lambda line: (line.broker_group, line.topic, line.group))

    async def _pages(self, command: Command, find: GroupFind, kind: type[P]) -> list[tuple[str, P]]:
        """Every page of every broker group: none is long, so that no broker is held up by one."""
        first = await self._fan_out.ask(command, find, kind)
        found: list[tuple[str, P]] = list(first.items())
        asking = [self._later_pages(command, find, name, page) for name, page in found]
        for pages in await asyncio.gather(*asking):
            found.extend(pages)
        return found

    async def _later_pages(
        self, command: Command, find: GroupFind, broker_group: str, first: P
    ) -> list[tuple[str, P]]:
        found: list[tuple[str, P]] = []
        page: P | None = first
        while page is not None and page.following:
            wanted = msgspec.structs.replace(find, after=page.following)
            answers = await self._fan_out.ask(command, wanted, type(first), [broker_group])
            page = answers.get(broker_group)  # None: away meanwhile, and noted as missing.
            found += [] if page is None else [(broker_group, page)]
        return found

    async def _group_order(
        self, command: Command, record: Record, groups: list[str] | None = None
    ) -> Group:
        """An order about a group, to all; what it is like then, everywhere together."""
        answers = await self._fan_out.ask(command, record, Group, groups)
        if not answers:
            raise not_answered(self.missing, [])
        return merged_group([named(name, group) for name, group in answers.items()])

    async def _make_everywhere(self, topic: str, group: str) -> None:
        """A broker group that was added later has the group too, with these settings, before a
        consumer brings it there; it misses nothing."""
        find = GroupNamed(topic=topic, group=group)
        found, absent = await self._fan_out.try_all(Command.GROUP_KEYS, find, GroupKeys)
        if found and absent:
            create = GroupCreate(topic=topic, group=group)
            await self._fan_out.ask(Command.GROUP_CREATE, create, Group, sorted(absent))
