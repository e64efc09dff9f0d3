"""What people order: one table of actions for the pages and the API.

An `OrderedAction` knows its name, what it needs, whether it can be undone, and three things: what
it would do (`preview`, which changes nothing), doing it (`run`), and how the same is said with the
command line. Arguments come from a form or from JSON and are texts; a wrong one is a `BadRequest`
with the words to write instead. What cannot be undone needs the name of the thing, typed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from ternmq.api.views.letters import LetterBox, LetterVerb
from ternmq.client.client import Client
from ternmq.client.reading.written_start import parse_start
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.wire.messages.delays import DelayAction

Arguments = Mapping[str, str]
IDS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDone:
    """What happened, or in a dry run what would."""

    text: str
    """One sentence."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    done: bool = True


Step = Callable[[Client, Arguments, bool], Awaitable[ActionDone]]
"""With a dry run or without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedAction:
    """One thing that can be ordered."""

    name: str
    title: str
    needs: tuple[str, ...]
    step: Step
    typed: str = ""
    """The argument whose value a person types, as this cannot be undone."""
    cli: str = ""
    """The same with the command line; `{name}` stands for arguments."""
    right: Literal["operate", "own"] = "operate"

    def check(self, arguments: Arguments) -> None:
        for name in self.needs:
            if not arguments.get(name):
                raise BadRequest(f"{self.name} needs {name}")
        for name in ("topic", "group"):
            if name in self.needs:
                check_name(name, arguments[name])

    async def preview(self, mq: Client, arguments: Arguments) -> ActionDone:
        """What it would do; nothing is changed."""
        self.check(arguments)
        return await self.step(mq, arguments, True)

    async def run(self, mq: Client, arguments: Arguments) -> ActionDone:
        self.check(arguments)
        return await self.step(mq, arguments, False)


def find_action(name: str) -> OrderedAction:
    try:
        return ACTIONS[name]
    except KeyError:
        raise BadRequest(
            f"there is no action {name[:40]!r}; there are: {', '.join(ACTIONS)}"
        ) from None


def ids_of(arguments: Arguments) -> list[str]:
    """Ids that stand in one text, one after the other."""
    ids = arguments["ids"].replace(",", " ").split()
    if not 1 <= len(ids) <= IDS_MAX:
        raise BadRequest(f"{len(ids)} ids; it can be 1 to {IDS_MAX} at a time")
    return list(dict.fromkeys(ids))


def start_of(arguments: Arguments) -> Any:
    """Where a group goes on, as people write it."""
    return parse_start(arguments["start"], now=datetime.now(UTC))


# Topics.


def _topic_switch(setting: str, value: bool, would: str, done: str) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        topic = arguments["topic"]
        now = await mq.admin.topic(topic)
        if getattr(now.settings, setting) == value:
            return ActionDone(text=f"nothing to do: {done.format(topic)} already", done=False)
        if not dry:
            await mq.admin.set_topic(topic, **{setting: value})
        return ActionDone(text=(would if dry else done).format(topic), done=not dry)

    return step


async def _delete_topic(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic = arguments["topic"]
    await mq.admin.topic(topic)
    groups = {group.name for group in await mq.admin.groups(topic)}
    kept = sum(x.end - x.first for x in (await mq.admin.seek_all(topic, "earliest")).values())
    facts = {"messages": kept, "groups": len(groups)}
    if not dry:
        await mq.admin.delete_topic(topic)
    word = "would be" if dry else "are"
    text = f"{topic} with {kept:,} messages and {len(groups)} groups {word} deleted for good"
    return ActionDone(text=text, facts=facts, done=not dry)


# Groups.


def _group_switch(value: bool, would: str, done: str) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        topic, group = arguments["topic"], arguments["group"]
        found = await mq.admin.groups(topic, group)
        ready = sum(each.ledger.ready for each in found)
        facts = {"ready": ready, "members": max((len(x.members) for x in found), default=0)}
        if found and all(each.settings.paused == value for each in found):
            text = f"nothing to do: {done.format(group)} already"
            return ActionDone(text=text, facts=facts, done=False)
        if not dry:
            await mq.admin.set_group(topic, group, paused=value)
        return ActionDone(text=(would if dry else done).format(group), facts=facts, done=not dry)

    return step


async def _reset_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group = arguments["topic"], arguments["group"]
    start = start_of(arguments)
    place = arguments.get("broker_group", "")
    done = await mq.admin.reset_group(topic, group, start, dry_run=dry, broker_group=place)
    word = "would" if dry else "will"
    text = (
        f"{group} {word} go on from {arguments['start']}: {done.again:,} messages come (again), "
        f"{done.skipped:,} are never handed out"
    )
    return ActionDone(text=text, facts={"again": done.again, "skipped": done.skipped}, done=not dry)


async def _retry_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group = arguments["topic"], arguments["group"]
    rows = await mq.admin.retry_group(topic, group, dry_run=dry)
    word = "would be" if dry else "are"
    text = f"{rows:,} messages that wait for a retry {word} ready at once, as attempt 1"
    return ActionDone(text=text, facts={"messages": rows}, done=not dry)


async def _resume_key(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group, key = arguments["topic"], arguments["group"], arguments["key"]
    skip = arguments.get("skip") == "yes"
    how = "becomes a dead letter" if skip else "is tried again"
    if dry:
        return ActionDone(text=f"the message that key {key!r} waits for {how}", done=False)
    rows = await mq.admin.resume_key(topic, group, key, skip)
    return ActionDone(text=f"key {key!r} goes on: {rows:,} messages", facts={"messages": rows})


async def _delete_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group = arguments["topic"], arguments["group"]
    found = await mq.admin.groups(topic, group)
    if not found:
        raise BadRequest(f"topic {topic} has no group {group}")
    left = sum(x.ledger.ready + x.ledger.in_flight + x.ledger.waiting_retry for x in found)
    if not dry:
        await mq.admin.delete_group(topic, group)
    word = "would be" if dry else "is"
    text = f"{group} {word} deleted; {left:,} messages that it has not handled never reach it"
    return ActionDone(text=text, facts={"open": left}, done=not dry)


# Letters.


def _letters(verb: LetterVerb, *, dead: bool) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        of = {"group": arguments["group"]} if dead else {"topic": arguments["topic"]}
        box = LetterBox(mq=mq, **of)
        ids = ids_of(arguments)
        if dry:
            return await _letters_preview(box, verb, ids)
        done = await box.handle(verb, ids)
        word = "sent again" if verb == "resend" else "deleted"
        failed = len(ids) - done.handled
        text = f"{done.handled:,} of {len(ids):,} {word}, {failed:,} not"
        results = {each["id"]: each["result"] for each in done.results}
        facts = {"handled": done.handled, "failed": failed, "results": results}
        return ActionDone(text=text, facts=facts)

    return step


async def _letters_preview(box: LetterBox, verb: LetterVerb, ids: list[str]) -> ActionDone:
    wanted = {id.upper() for id in ids}
    read = await box.read()
    chosen = [each for each in read.letters if each.message.id.upper() in wanted]
    again = sum(1 for each in chosen if each.notes.get("%resent"))
    topics = sorted({str(each.notes.get("%topic", "")) for each in chosen})
    where = f"to group {box.group} alone" if box.group else f"to every group of {box.topic}"
    how = f"would be sent again, {where}" if verb == "resend" else "would be deleted for good"
    text = f"{len(chosen):,} messages {how}"
    if verb == "resend" and again:
        text += f"; {again:,} of them were sent again before and died again"
    facts = {
        "chosen": len(chosen),
        "not open any more": len(wanted) - len(chosen),
        "sent again before": again,
        "topics": topics,
    }
    return ActionDone(text=text, facts=facts, done=False)


# Delayed messages, transactions, servers.


def _delayed(action: DelayAction, would: str) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        ids = ids_of(arguments)
        at = None
        if action == "reschedule":
            at = _moment(arguments["at"])
        if dry:
            when = f" {at:%Y-%m-%d %H:%M:%S} UTC" if at else ""
            return ActionDone(text=f"{len(ids):,} messages {would}{when}", done=False)
        results = {id: str(await mq.admin.delays.change(action, id, at=at)) for id in ids}
        counts: dict[str, int] = {}
        for result in results.values():
            counts[result] = counts.get(result, 0) + 1
        text = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        return ActionDone(text=text, facts={"counts": counts, "results": results})

    return step


def _moment(text: str) -> datetime:
    """A time without a zone is UTC, as every time that is shown."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is not a time; write 2026-01-31T12:00:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _end_half(action: Literal["commit", "rollback"], would: str) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        if dry:
            return ActionDone(text=f"transaction {arguments['transaction']} {would}", done=False)
        ended = await mq.admin.end_half(arguments["transaction"], action)
        return ActionDone(text=f"the transaction is {ended.state.replace('_', ' ')}")

    return step


async def _recall(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    group, topic = arguments["group"], arguments["topic"]
    if dry:
        text = (
            f"letters of {topic} that were sent again to {group} and that no consumer was handed "
            "yet become open letters once more; the others are left alone"
        )
        return ActionDone(text=text, done=False)
    taken = await mq.admin.recall_dead_letters(group, topic)
    return ActionDone(text=f"{taken:,} letters are open again", facts={"taken": taken})


async def _disconnect(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    session = arguments["session"]
    if dry:
        text = f"the client {session[:12]} loses its connections; it is told why and may come back"
        return ActionDone(text=text, done=False)
    hung = await mq.admin.disconnect(session, arguments.get("reason", "by the console"))
    return ActionDone(text=f"{hung:,} connections were ended", facts={"connections": hung})


async def _handover(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    group = arguments["broker_group"]
    kind: Any = arguments.get("kind") or "realtime"
    states = [state for state in await mq.admin.brokers(kind) if state.group == group]
    others = [x for x in states if x.role != "master" and x.in_sync and x.state == "ok"]
    if not others:
        raise BadRequest(f"no other member of {group} is in sync: nobody could take over")
    if dry:
        text = f"another member of {group} leads; nothing is lost, sending pauses for a moment"
        return ActionDone(text=text, facts={"in sync": len(others)}, done=False)
    done = await mq.admin.handover(group, arguments.get("member") or None, kind)
    return ActionDone(text=f"{group} is led by another member", facts={"epoch": done.epoch})


def _drain(undo: bool, would: str) -> Step:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        group = arguments["broker_group"]
        kind: Any = arguments.get("kind") or "realtime"
        if not dry:
            await mq.admin.drain(group, undo, kind)
        return ActionDone(text=would.format(group), done=not dry)

    return step


_ALL = (
    OrderedAction(
        name="pause-topic",
        title="Pause sending",
        needs=("topic",),
        step=_topic_switch(
            "paused", True, "sending to {} would be refused; consuming goes on", "{} is paused"
        ),
        cli="tern topic pause {topic}",
    ),
    OrderedAction(
        name="resume-topic",
        title="Resume sending",
        needs=("topic",),
        step=_topic_switch(
            "paused", False, "{} would take messages again", "{} takes messages again"
        ),
        cli="tern topic resume {topic}",
    ),
    OrderedAction(
        name="pause-consuming",
        title="Pause consuming",
        needs=("topic",),
        step=_topic_switch(
            "consume_paused",
            True,
            "nothing of {} would be handed out to any group",
            "consuming {} is paused",
        ),
        cli="tern topic pause {topic} --consuming",
    ),
    OrderedAction(
        name="resume-consuming",
        title="Resume consuming",
        needs=("topic",),
        step=_topic_switch(
            "consume_paused", False, "{} would be handed out again", "{} is handed out again"
        ),
        cli="tern topic resume {topic} --consuming",
    ),
    OrderedAction(
        name="delete-topic",
        title="Delete topic",
        needs=("topic",),
        step=_delete_topic,
        typed="topic",
        cli="tern topic delete {topic}",
        right="own",
    ),
    OrderedAction(
        name="pause-group",
        title="Pause group",
        needs=("topic", "group"),
        step=_group_switch(
            True, "nothing would be handed out to {}; acks and retries go on", "{} is paused"
        ),
        cli="tern group pause {topic} {group}",
    ),
    OrderedAction(
        name="resume-group",
        title="Resume group",
        needs=("topic", "group"),
        step=_group_switch(False, "{} would be handed messages again", "{} goes on"),
        cli="tern group resume {topic} {group}",
    ),
    OrderedAction(
        name="reset-group",
        title="Reset position",
        needs=("topic", "group", "start"),
        step=_reset_group,
        typed="group",
        cli="tern group reset {topic} {group} --to {start}",
    ),
    OrderedAction(
        name="retry-group",
        title="Retry now",
        needs=("topic", "group"),
        step=_retry_group,
        cli="tern group reset {topic} {group} --waiting",
    ),
    OrderedAction(
        name="resume-key",
        title="Let key go on",
        needs=("topic", "group", "key"),
        step=_resume_key,
        cli="tern group resume {topic} {group} --key {key}",
    ),
    OrderedAction(
        name="delete-group",
        title="Delete group",
        needs=("topic", "group"),
        step=_delete_group,
        typed="group",
        cli="tern group delete {topic} {group}",
        right="own",
    ),
    OrderedAction(
        name="resend-dead",
        title="Send again",
        needs=("group", "ids"),
        step=_letters("resend", dead=True),
        cli="tern dead resend {group} --id {ids}",
    ),
    OrderedAction(
        name="delete-dead",
        title="Delete letters",
        needs=("group", "ids"),
        step=_letters("delete", dead=True),
        typed="group",
        cli="tern dead delete {group} --id {ids}",
    ),
    OrderedAction(
        name="resend-refused",
        title="Send to the topic",
        needs=("topic", "ids"),
        step=_letters("resend", dead=False),
        cli="tern dead resend --topic {topic} --id {ids}",
    ),
    OrderedAction(
        name="delete-refused",
        title="Delete refused",
        needs=("topic", "ids"),
        step=_letters("delete", dead=False),
        typed="topic",
        cli="tern dead delete --topic {topic} --id {ids}",
    ),
    OrderedAction(
        name="cancel-delayed",
        title="Cancel",
        needs=("ids",),
        step=_delayed("cancel", "would never be handed out"),
        cli="tern delay cancel {ids}",
    ),
    OrderedAction(
        name="move-delayed",
        title="Move",
        needs=("ids", "at"),
        step=_delayed("reschedule", "would be due at"),
        cli="tern delay reschedule {ids} --at {at}",
    ),
    OrderedAction(
        name="fire-delayed",
        title="Send now",
        needs=("ids",),
        step=_delayed("fire", "would go out at once"),
        cli="tern delay fire {ids}",
    ),
    OrderedAction(
        name="commit-half",
        title="Commit",
        needs=("transaction",),
        step=_end_half("commit", "would become visible to every group"),
        cli="tern half commit {transaction}",
    ),
    OrderedAction(
        name="rollback-half",
        title="Roll back",
        needs=("transaction",),
        step=_end_half("rollback", "would never be seen by anybody"),
        typed="transaction",
        cli="tern half rollback {transaction}",
    ),
    OrderedAction(
        name="recall-dead",
        title="Take back",
        needs=("group", "topic"),
        step=_recall,
        cli="tern dead recall {group} --topic {topic}",
    ),
    OrderedAction(
        name="disconnect",
        title="Hang up",
        needs=("session",),
        step=_disconnect,
        cli="tern clients disconnect {session}",
    ),
    OrderedAction(
        name="hand-over",
        title="Hand over",
        needs=("broker_group",),
        step=_handover,
        cli="tern broker handover {broker_group}",
    ),
    OrderedAction(
        name="drain",
        title="Drain",
        needs=("broker_group",),
        step=_drain(False, "producers move away from {}; what is there is still handed out"),
        cli="tern broker drain {broker_group}",
    ),
    OrderedAction(
        name="undrain",
        title="Take messages again",
        needs=("broker_group",),
        step=_drain(True, "producers use {} again"),
        cli="tern broker drain {broker_group} --undo",
    ),
)
ACTIONS = {action.name: action for action in _ALL}
