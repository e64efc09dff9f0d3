"""`tern group`: list, look at, make, change, delete and reset consumer groups."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.messages import ledger
from ternmq.cli.terminal.options import URL, Create, Json, Url, Yes, confirm, must_exist, use
from ternmq.cli.terminal.output import say, show_facts, show_json, show_table, utc
from ternmq.cli.terminal.partial_answers import BrokerGroup, end_incomplete, use_tolerant
from ternmq.cli.topics import group_replay, group_reset, limit
from ternmq.cli.topics.topic_keep import shown_duration
from ternmq.cli.topics.watch import Watch, show_again, shown_age, shown_rates, shown_times
from ternmq.client.admin.merge_answers import differing, merged_figures, merged_group, merged_groups
from ternmq.client.inspection.times import TimeSpread, WaitAndHandle
from ternmq.client.reading import written_start as starts
from ternmq.client.transport.fan_out import not_answered
from ternmq.core.errors import BadRequest, GroupNotFound
from ternmq.core.ids import check_name
from ternmq.core.units import parse_duration_ms
from ternmq.wire.messages.groups import Group, GroupSettings, Start
from ternmq.wire.messages.order_keys import GroupKeys
from ternmq.wire.messages.stats import GroupFigures

if TYPE_CHECKING:
    from ternmq.client.admin.admin import Admin
    from ternmq.client.client import Client

app = typer.Typer(
    help="List, look at, make, change, delete and reset consumer groups.", no_args_is_help=True
)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
def list_groups(
    topic: Annotated[str, typer.Argument(help="Only groups of this topic.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List the groups, with what is still to do and who consumes."""
    each, missing = use_tolerant(url, lambda admin: admin.groups(topic))
    groups = merged_groups(each)
    if as_json:
        show_json([_fields(group) for group in groups])
        end_incomplete(missing)
        return
    show_table(
        [
            "topic",
            "group",
            "lane",
            "#ready",
            "#in flight",
            "#retry",
            "#acked",
            "#dead",
            "#consumers",
        ],
        [
            (
                group.topic,
                group.name,
                group.ledger.lane,
                group.ledger.ready,
                group.ledger.in_flight,
                group.ledger.waiting_retry,
                group.ledger.acked,
                group.ledger.dead,
                len(group.members),
            )
            for group in groups
        ],
    )
    end_incomplete(missing)


@app.command()
def show(
    topic: TopicName,
    group: GroupName,
    watch: Watch = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show a group: its ledger, backlog, rates and consumers."""

    async def look(admin: "Admin") -> GroupsSeen:
        each = [one for one in await admin.groups(topic, group) if one.ledger.lane == "topic"]
        if not each and not admin.missing:
            raise GroupNotFound(
                f"topic {topic!r} has no group {group!r}; `tern group list` shows all"
            )
        if not each:
            raise not_answered(admin.missing, [])
        figures = merged_figures(await admin.group_figures(topic, group))
        keys, times = await admin.group_keys(topic, group), await admin.group_times(topic, group)
        return each, figures, keys, times

    def show_it(seen: GroupsSeen) -> None:
        each, figures, keys, times = seen
        if as_json:
            parts = [{"broker_group": one.broker_group, "ledger": one.ledger} for one in each]
            fields = _fields(merged_group(each)) | {"figures": figures, "keys": keys}
            fields |= {"wait": _times(times.wait), "handle": _times(times.handle)}
            show_json(fields | {"broker_groups": parts}, indent=None if watch else 2)
        else:
            _show(*seen)

    show_again(url, look, show_it, watch=watch)


GroupsSeen = tuple[list[Group], list[GroupFigures], GroupKeys, WaitAndHandle]
"""The group on each broker group, its lanes, its order keys, how long its messages take."""


def _times(seen: TimeSpread) -> dict[str, object]:
    shares = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}
    return {"messages": seen.rows} | {name: seen.within(each) for name, each in shares.items()}


def _show(
    each: list[Group], figures: list[GroupFigures], keys: GroupKeys, times: WaitAndHandle
) -> None:
    found = merged_group(each)
    paused = found.settings.paused_sessions
    others = differing(each)
    show_facts(
        {
            "group": found.name,
            "topic": found.topic,
            "id": found.id,
            "created": utc(found.created_at_ms),
            "ledger": ledger.equation(found.ledger),
            **(
                {f"  on {one.broker_group}": ledger.equation(one.ledger) for one in each}
                if len(each) > 1
                else {}
            ),
            **{_title(lane): _backlog(lane) for lane in figures},
            "delivered": shown_rates(figures[0].delivered) if figures else "-",
            "wait": shown_times(times.wait, times.wait_ever),
            "handle": shown_times(times.handle, times.handle_ever),
            "consumers": len(found.members),
            **_settings(found),
            **({"other settings": f"on {', '.join(others)}"} if others else {}),
            **_standing(keys),
        }
    )
    if keys.stopped:
        show_table(
            ["stopped key", "#sequence", "#attempts", "#held back", "error"],
            [
                (stop.key or "", stop.sequence, stop.attempt - 1, stop.held_back, stop.error)
                for stop in keys.stopped
            ],
        )
    if found.members:
        show_table(
            [
                "session",
                "app",
                "host",
                "#pid",
                "address",
                "#in flight",
                "joined",
                "filter",
                "state",
            ],
            [
                (
                    member.session,
                    member.app,
                    member.host,
                    member.pid,
                    member.address,
                    member.in_flight,
                    utc(member.joined_at_ms),
                    found.filter or "none",
                    "paused" if member.session in paused else "running",
                )
                for member in found.members
            ],
        )


def _title(lane: GroupFigures) -> str:
    return "backlog" if lane.lane == "topic" else "backlog (private lane)"


def _backlog(lane: GroupFigures) -> str:
    parts = [f"{lane.backlog} messages"]
    if lane.backlog:
        parts.append(shown_age(lane.backlog_ms))
    if lane.alarm:
        parts.append("ALARM")
    if lane.held_back:
        parts.append(f"held back: {lane.held_back}")
    return ", ".join(parts)


@app.command()
def create(
    topic: TopicName,
    group: GroupName,
    start: Annotated[str, typer.Option("--from", help=starts.HELP)] = "earliest",
    broker_group: BrokerGroup = "",
    make_topic: Create = False,
    exist_ok: Annotated[bool, typer.Option(help="One that is there stays as it is.")] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a group; its start is stored from this moment on. The topic must be there."""
    check_name("group", group)
    where = _start(start)

    async def job(mq: "Client") -> Group:
        if not make_topic:
            await must_exist(mq, topic)
        return await mq.admin.create_group(topic, group, where, broker_group, exist_ok)

    made = use(url, job)
    if as_json:
        show_json(_fields(made))
    else:
        everywhere = "" if made.broker_group else ", all broker groups together"
        start_at = f"starts at sequence {made.ledger.start}{everywhere}"
        say(f"group {made.name} on {made.topic} {start_at}")


@app.command("set")
def change(
    topic: TopicName,
    group: GroupName,
    retry: Annotated[
        str | None,
        typer.Option(
            help="When failed messages come again: default, rocketmq, power, fixed:5s, "
            "exponential:1s..10m, table:1s,10s,1m."
        ),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=0, help="Failures before a message is dead; 0: no limit.")
    ] = None,
    ordered_attempts: Annotated[
        int | None, typer.Option(min=0, help="The same for ordered consumers; 0: no limit.")
    ] = None,
    rate: limit.Rate = None,
    bytes_rate: limit.BytesRate = None,
    max_in_flight: Annotated[
        int | None, typer.Option(min=0, help="Messages handed out and not settled; 0: no limit.")
    ] = None,
    consumer_max_in_flight: Annotated[
        int | None, typer.Option(min=0, help="The same for each consumer; 0: no limit.")
    ] = None,
    backlog_alarm: Annotated[
        int | None, typer.Option(min=0, help="Warn when more messages are ready; 0: never.")
    ] = None,
    dead_keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long dead letters are open, e.g. 7d; 0: no limit."),
    ] = None,
    on_failure: Annotated[
        str | None,
        typer.Option(
            help="Ordered consumers: retry in place, or stop the key until it is resumed."
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="on|off", help="Hand out higher priorities first.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="keys|none|any",
            help="Consumers must be ordered by key, must not be, or may be as they like.",
        ),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Change a group's settings; they apply at once, also to what waits for a retry."""
    _set(
        topic,
        group,
        url,
        as_json,
        None,
        retry=retry,
        attempts_max=attempts,
        ordered_attempts_max=ordered_attempts,
        in_flight_max=max_in_flight,
        consumer_in_flight_max=consumer_max_in_flight,
        backlog_alarm=backlog_alarm,
        dead_letter_keep_ms=_keep_ms(dead_keep),
        on_failure=on_failure,
        priority=_on_or_off(priority),
        order="" if order == "any" else order,
        **limit.rates(rate, bytes_rate),
    )


OneMember = Annotated[
    str | None,
    typer.Option(
        "--member", metavar="SESSION", help="Only this consumer, as `group show` names it."
    ),
]


@app.command()
def pause(
    topic: TopicName,
    group: GroupName,
    member: OneMember = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Hand nothing out to this group, or one consumer of it; acks and retries go on."""
    _set(topic, group, url, as_json, member, paused=True)


@app.command()
def resume(
    topic: TopicName,
    group: GroupName,
    member: OneMember = None,
    key: Annotated[
        str | None, typer.Option(help="Only this order key, which stopped at a failed message.")
    ] = None,
    all_keys: Annotated[
        bool, typer.Option("--all-keys", help="Every order key that stands still.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Do not try the failed message again: a dead letter.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Hand out again: to a paused group or consumer, or of an order key that stands still."""
    if key is None and not all_keys:
        if skip:
            raise BadRequest("--skip is about order keys: say which one with --key, or --all-keys")
        _set(topic, group, url, as_json, member, paused=False)
        return

    async def job(mq: "Client") -> int:
        return await mq.admin.resume_key(topic, group, key, skip)

    rows = use(url, job)
    if not rows and key is not None:
        raise BadRequest(
            f"key {key!r} of group {group!r} does not stand still; "
            f"`tern group show {topic} {group}` names those that do"
        )
    if as_json:
        show_json({"topic": topic, "group": group, "key": key, "skipped": skip, "messages": rows})
    else:
        say(f"{rows} failed messages {'are dead letters' if skip else 'are tried again'}")


def _on_or_off(text: str | None) -> bool | None:
    if text not in (None, "on", "off"):
        raise BadRequest(f"{text!r} is neither on nor off")
    return None if text is None else text == "on"


def _set(
    topic: str, group: str, url: str, as_json: bool, member: str | None, **changes: Any
) -> None:
    async def job(mq: "Client") -> Group:
        if member is not None:
            return await mq.admin.pause_consumer(topic, group, member, **changes)
        return await mq.admin.set_group(topic, group, **changes)

    changed = use(url, job)
    if as_json:
        show_json(_fields(changed))
    else:
        show_facts({"group": changed.name, "topic": changed.topic, **_settings(changed)})


def _standing(keys: GroupKeys) -> dict[str, object]:
    """What is paused or stopped, if anything is."""
    found: dict[str, object] = {}
    if keys.stopped_count:
        found["stopped keys"] = keys.stopped_count
    if keys.full_since_ms:
        found["look-ahead"] = (
            f"full since {utc(keys.full_since_ms)}: key {keys.full_key!r} holds back "
            f"{keys.full_rows} messages and, with them, every other key"
        )
    return found


def _settings(group: Group) -> dict[str, object]:
    settings = group.settings
    limit = settings.ordered_attempts_max if group.ordered else settings.attempts_max
    return {
        "state": "paused" if settings.paused else "running",
        "retry": settings.retry,
        "attempts": limit or "no limit",
        "order": "by order key" if group.ordered or settings.order == "keys" else "none",
        "on failure": settings.on_failure,
        "priority": "higher ones first" if settings.priority else "none",
        "filter": group.filter or "none",
        "limits": _limits(settings),
        "backlog alarm": settings.backlog_alarm or "none",
        "dead letters kept": _kept(settings.dead_letter_keep_ms),
    }


def _kept(keep_ms: int) -> str:
    if keep_ms < 0:
        return "as the broker says"
    return shown_duration(keep_ms) if keep_ms else "like messages"


def _limits(settings: GroupSettings) -> str:
    parts = []
    if settings.rate:
        parts.append(limit.shown_rate(settings.rate))
    if settings.bytes_rate:
        parts.append(limit.shown_size_rate(settings.bytes_rate))
    if settings.in_flight_max:
        parts.append(f"{settings.in_flight_max} in flight")
    if settings.consumer_in_flight_max:
        parts.append(f"{settings.consumer_in_flight_max} in flight per consumer")
    return ", ".join(parts) or "none"


@app.command()
def delete(
    topic: TopicName, group: GroupName, yes: Yes = False, url: Url = URL, as_json: Json = False
) -> None:
    """Delete a group and everything it remembers; messages stay."""
    confirm(f"Delete group {group} on {topic}? What it acked is forgotten.", yes=yes)

    async def job(mq: "Client") -> None:
        await mq.admin.delete_group(topic, group)

    use(url, job)
    if as_json:
        show_json({"deleted": group, "topic": topic})
    else:
        say(f"group {group} on {topic} is deleted")


def _keep_ms(text: str | None) -> int | None:
    return None if text is None else 0 if text == "0" else parse_duration_ms(text)


def _start(text: str) -> Start:
    return starts.as_start(starts.parse_start(text, now=datetime.now(UTC)))


def _fields(group: Group) -> dict[str, object]:
    return {
        "name": group.name,
        "topic": group.topic,
        "id": group.id,
        "created_at": utc(group.created_at_ms),
        "ledger": group.ledger,
        "members": group.members,
        "settings": group.settings,
        "filter": group.filter,
        "ordered": group.ordered,
        "lane": group.ledger.lane,
    }


app.command()(group_reset.reset)
app.command()(group_replay.replay)
