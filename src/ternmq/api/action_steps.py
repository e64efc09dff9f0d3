"""What each action does: one function each, with a dry run or without.

A step gets the client, its arguments (texts, from a form or from JSON) and whether it is only to
say what it would do. It answers with one sentence and facts. Never asks a person; never guesses.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from ternmq.api.views.letters import LetterBox, LetterVerb
from ternmq.client.client import Client
from ternmq.client.reading.written_start import parse_start
from ternmq.core.errors import BadRequest, Forbidden
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


ActionStep = Callable[[Client, Arguments, bool], Awaitable[ActionDone]]
"""With a dry run or without."""


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


def topic_switch(setting: str, value: bool, would: str, done: str) -> ActionStep:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        topic = arguments["topic"]
        now = await mq.admin.topic(topic)
        if getattr(now.settings, setting) == value:
            return ActionDone(text=f"nothing to do: {done.format(topic)} already", done=False)
        if not dry:
            await mq.admin.set_topic(topic, **{setting: value})
        return ActionDone(text=(would if dry else done).format(topic), done=not dry)

    return step


async def delete_topic(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic = arguments["topic"]
    await mq.admin.topic(topic)
    groups = {group.name for group in await mq.admin.groups(topic)}
    try:
        found = (await mq.admin.seek_all(topic, "earliest")).values()
        facts: dict[str, Any] = {"messages": sum(x.end - x.first for x in found)}
    except Forbidden:  # Who may not read it is not told how much is there.
        facts = {"messages": "all"}
    facts["groups"] = len(groups)
    if not dry:
        await mq.admin.delete_topic(topic)
    word = "would be" if dry else "are"
    kept = facts["messages"]
    count = f"{kept:,}" if isinstance(kept, int) else kept
    text = f"{topic} with {count} messages and {len(groups)} groups {word} deleted for good"
    return ActionDone(text=text, facts=facts, done=not dry)


# Groups.


def group_switch(value: bool, would: str, done: str) -> ActionStep:
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


async def reset_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
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


async def retry_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group = arguments["topic"], arguments["group"]
    rows = await mq.admin.retry_group(topic, group, dry_run=dry)
    word = "would be" if dry else "are"
    text = f"{rows:,} messages that wait for a retry {word} ready at once, as attempt 1"
    return ActionDone(text=text, facts={"messages": rows}, done=not dry)


async def resume_key(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    topic, group, key = arguments["topic"], arguments["group"], arguments["key"]
    skip = arguments.get("skip") == "yes"
    how = "becomes a dead letter" if skip else "is tried again"
    if dry:
        return ActionDone(text=f"the message that key {key!r} waits for {how}", done=False)
    rows = await mq.admin.resume_key(topic, group, key, skip)
    return ActionDone(text=f"key {key!r} goes on: {rows:,} messages", facts={"messages": rows})


async def delete_group(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
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


def letters_step(verb: LetterVerb, *, dead: bool) -> ActionStep:
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


def delayed_step(action: DelayAction, would: str) -> ActionStep:
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


def half_step(action: Literal["commit", "rollback"], would: str) -> ActionStep:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        if dry:
            return ActionDone(text=f"transaction {arguments['transaction']} {would}", done=False)
        ended = await mq.admin.end_half(arguments["transaction"], action)
        return ActionDone(text=f"the transaction is {ended.state.replace('_', ' ')}")

    return step


async def recall_letters(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    group, topic = arguments["group"], arguments["topic"]
    if dry:
        text = (
            f"letters of {topic} that were sent again to {group} and that no consumer was handed "
            "yet become open letters once more; the others are left alone"
        )
        return ActionDone(text=text, done=False)
    taken = await mq.admin.recall_dead_letters(group, topic)
    return ActionDone(text=f"{taken:,} letters are open again", facts={"taken": taken})


async def disconnect(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    session = arguments["session"]
    if dry:
        text = f"the client {session[:12]} loses its connections; it is told why and may come back"
        return ActionDone(text=text, done=False)
    hung = await mq.admin.disconnect(session, arguments.get("reason", "by the console"))
    return ActionDone(text=f"{hung:,} connections were ended", facts={"connections": hung})


async def hand_over(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
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


def drain_step(undo: bool, would: str) -> ActionStep:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        group = arguments["broker_group"]
        kind: Any = arguments.get("kind") or "realtime"
        if not dry:
            await mq.admin.drain(group, undo, kind)
        return ActionDone(text=would.format(group), done=not dry)

    return step


async def promote(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    """Only where nothing is lost; what costs messages is for the command line."""
    group, member = arguments["broker_group"], arguments["member"]
    kind: Any = arguments.get("kind") or "realtime"
    states = [state for state in await mq.admin.brokers(kind) if state.group == group]
    chosen = next((state for state in states if state.address == member), None)
    if chosen is None:
        raise BadRequest(f"{group} has no member {member[:80]!r}")
    if any(state.role == "master" and state.state == "ok" for state in states):
        raise BadRequest(f"the master of {group} answers: hand over instead, which waits for all")
    if not chosen.in_sync:
        raise BadRequest(
            f"{member} is not in sync: what it lacks would be lost. If that must be: "
            f"tern broker promote {group} {member} --accept-loss"
        )
    if not dry:
        await mq.admin.promote(group, member, force=True, kind=kind)
    word = "would lead" if dry else "leads"
    text = f"{member} {word} {group}; it was in sync, so nothing that was acknowledged is lost"
    return ActionDone(text=text, done=not dry)


async def set_weight(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    group, text = arguments["broker_group"], arguments["weight"]
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise BadRequest(f"weight is {text[:40]!r}; it is a number, 100 for most, 0: nothing new")
    if group not in await mq.admin.broker_groups():
        raise BadRequest(f"there is no broker group {group!r}")
    before = (await mq.admin.placement()).weights.get(group, 100)
    if not dry:
        await mq.admin.set_weight(group, int(text))
    word = "would have" if dry else "has"
    return ActionDone(text=f"{group} {word} weight {int(text)} instead of {before}", done=not dry)
