"""`tern topic`: make, list, look at, change, pause and delete topics."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import say, show_facts, show_json, show_table, size, utc
from ternmq.cli.topics import limit
from ternmq.cli.topics.topic_keep import KeepCost, keep_cost, parse_keep, shown_keep
from ternmq.cli.topics.watch import Watch, show_again, shown_rates
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.core.units import DAY_MS, parse_duration_ms, parse_size
from ternmq.wire.messages.stats import Rates, TopicFigures, TopicStatus
from ternmq.wire.messages.topics import KEY_PERIOD_MS, Topic, TopicSettings

if TYPE_CHECKING:
    from ternmq.client.admin.admin import Admin
    from ternmq.client.client import Client

app = typer.Typer(
    help="Make, list, look at, change, pause and delete topics.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


MasterKeyName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Encrypt bodies, under this master key of the clients."),
]
KeyPeriod = Annotated[
    str | None, typer.Option(metavar="TIME", help="With it: another data key this often; 30d.")
]


@app.command()
def create(
    name: Name,
    body_size_max: Annotated[
        str, typer.Option(metavar="SIZE", help="Largest body allowed, for example 64KiB.")
    ] = "4MiB",
    closed: Annotated[
        bool, typer.Option(help="Only the applications of --app may use it.")
    ] = False,
    apps: Annotated[
        list[str] | None, typer.Option("--app", help="An application that may; repeat it.")
    ] = None,
    master_key: MasterKeyName = None,
    key_period: KeyPeriod = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a topic. One that is there already stays as it is."""
    check_name("topic", name)
    if apps and not closed:
        raise BadRequest("--app only means something together with --closed")
    for one in apps or []:
        check_name("application", one)
    settings = TopicSettings(
        closed=closed,
        apps=apps or [],
        body_size_max=parse_size(body_size_max),
        master_key=master_key or "",
        key_period_ms=parse_duration_ms(key_period) if key_period else 0,
    )

    async def job(mq: "Client") -> Topic:
        return await mq.admin.create_topic(name, settings)

    topic = use(url, job)
    if as_json:
        show_json(_fields(topic))
    else:
        say(f"topic {topic.name} is there (id {topic.id})")


@app.command("list")
def list_topics(url: Url = URL, as_json: Json = False) -> None:
    """List all topics."""

    async def job(mq: "Client") -> list[Topic]:
        return await mq.admin.topics()

    topics = sorted(use(url, job), key=lambda topic: topic.name)
    if as_json:
        show_json([_fields(topic) for topic in topics])
        return
    show_table(
        ["topic", "#id", "created", "#body max", "closed", "keep"],
        [
            (
                topic.name,
                topic.id,
                utc(topic.created_at_ms),
                size(topic.settings.body_size_max),
                "yes" if topic.settings.closed else "no",
                shown_keep(topic.settings.keep_ms),
            )
            for topic in topics
        ],
    )


@app.command()
def show(name: Name, watch: Watch = False, url: Url = URL, as_json: Json = False) -> None:
    """Show a topic: its settings, what the broker holds of it, rates and refusals."""

    async def look(admin: "Admin") -> TopicSeen:
        topic = await admin.topic(name)
        statuses = await admin.broker_status([name])
        held = {status.node: held for status in statuses for held in status.topics}
        return topic, held, await admin.topic_figures(name)

    def show_it(seen: TopicSeen) -> None:
        topic, held, figures = seen
        if as_json:
            parts = {"broker_groups": _each(held)}
            show_json(
                _fields(topic) | _held(held) | _figures(figures) | parts,
                indent=None if watch else 2,
            )
            return
        show_facts(_facts(topic) | _held(held) | _shown_figures(figures))
        if len(held) > 1:
            show_table(
                ["broker group", "#first", "#end", "#messages"],
                [
                    (one["broker_group"], one["first"], one["end"], one["messages"])
                    for one in _each(held)
                ],
            )

    show_again(url, look, show_it, watch=watch)


StatusByTopic = dict[str, TopicStatus]
"""What each broker group has of a topic."""
TopicSeen = tuple[Topic, StatusByTopic, list[TopicFigures]]


def _held(held: StatusByTopic) -> dict[str, object]:
    """All broker groups together: sequences are sums where there are several."""
    return {
        "first": sum(status.first for status in held.values()),
        "end": sum(status.end for status in held.values()),
        "messages": sum(status.end - status.first for status in held.values()),
        "groups": max((status.groups for status in held.values()), default=0),
    }


def _each(held: StatusByTopic) -> list[dict[str, object]]:
    return [
        {
            "broker_group": name,
            "first": status.first,
            "end": status.end,
            "messages": status.end - status.first,
        }
        for name, status in sorted(held.items())
    ]


def _figures(all_figures: list[TopicFigures]) -> dict[str, object]:
    """Of all broker groups together."""
    refused: dict[str, int] = {}
    for figures in all_figures:
        for reason, count in figures.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    return {
        "sent": {
            name: sum(getattr(figures.sent, name) for figures in all_figures)
            for name in Rates.__struct_fields__
        },
        "refused": refused,
        "put_aside": sum(figures.put_aside for figures in all_figures),
    }


def _shown_figures(all_figures: list[TopicFigures]) -> dict[str, object]:
    found = _figures(all_figures)
    refused = found["refused"]
    assert isinstance(refused, dict)
    shown = ", ".join(f"{count} {reason}" for reason, count in refused.items())
    sent = Rates(**found["sent"])  # type: ignore[arg-type]
    return {"sent": shown_rates(sent), "refused": shown or "none", "put_aside": found["put_aside"]}


class OverLimitFlag(StrEnum):
    """The values of --over-limit."""

    REFUSE = "refuse"
    DEAD_LETTER = "dead_letter"


@app.command("set")
def change(
    name: Name,
    rate: limit.Rate = None,
    bytes_rate: limit.BytesRate = None,
    over_limit: Annotated[
        OverLimitFlag | None,
        typer.Option(help="Over the limit: refuse, or put aside for `tern dead --topic`."),
    ] = None,
    body_size_max: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Largest body allowed, for example 64KiB.")
    ] = None,
    closed: Annotated[
        bool | None,
        typer.Option("--closed/--open", help="Only the applications of --app may use it."),
    ] = None,
    apps: Annotated[
        list[str] | None, typer.Option("--app", help="An application that may; repeat it.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Messages older than this are gone, e.g. 1h; 0: no own."),
    ] = None,
    broker_groups: Annotated[
        str | None,
        typer.Option(metavar="N|NAMES", help="Store on so many broker groups, or on a,b; 0: all."),
    ] = None,
    master_key: MasterKeyName = None,
    key_period: KeyPeriod = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --keep: say what would go, change nothing.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Change a topic's settings; they apply to the next message. --keep acts at once."""
    changes = {
        **limit.rates(rate, bytes_rate),
        "over_limit": over_limit.value if over_limit else None,
        "body_size_max": parse_size(body_size_max) if body_size_max else None,
        "closed": closed,
        "apps": apps or None,
        "keep_ms": parse_keep(keep),
        "master_key": master_key,
        "key_period_ms": parse_duration_ms(key_period) if key_period else None,
        **_home(broker_groups),
    }
    if dry_run and keep is None:
        raise BadRequest("--dry-run says what --keep would cost; name --keep")
    if keep is not None:
        keep_ms = parse_keep(keep) or 0
        cost = use(url, lambda mq: keep_cost(mq, name, keep_ms))
        if dry_run:
            _show_cost(name, keep_ms, cost, as_json=as_json)
            return
        if cost.messages:
            confirm(cost.question(name, keep_ms), yes=yes)
    _set(name, {key: value for key, value in changes.items() if value is not None}, url, as_json)


def _show_cost(name: str, keep_ms: int, cost: KeepCost, *, as_json: bool) -> None:
    if as_json:
        fields = {"topic": name, "keep_ms": keep_ms, "expires": cost.messages}
        show_json(fields | {"unread": cost.unread})
        return
    shown = {"topic": name, "keep": shown_keep(keep_ms), "expires": cost.messages}
    show_facts(shown | {f"unread by {group}": count for group, count in cost.unread.items()})


def _home(text: str | None) -> dict[str, object]:
    """'2' or 'east,west' as settings."""
    if text is None:
        return {}
    if text.isdecimal():
        return {"broker_groups": int(text), "on_groups": []}
    return {"broker_groups": 0, "on_groups": [name.strip() for name in text.split(",")]}


Consuming = Annotated[
    bool, typer.Option("--consuming", help="What groups are handed, instead of sending.")
]


@app.command()
def pause(name: Name, consuming: Consuming = False, url: Url = URL, as_json: Json = False) -> None:
    """Refuse what is sent to a topic until it is resumed; consuming goes on."""
    _set(name, {"consume_paused" if consuming else "paused": True}, url, as_json)


@app.command()
def resume(name: Name, consuming: Consuming = False, url: Url = URL, as_json: Json = False) -> None:
    """Take messages again, or hand them out again."""
    _set(name, {"consume_paused" if consuming else "paused": False}, url, as_json)


def _set(name: str, changes: dict[str, object], url: str, as_json: bool) -> None:
    if not changes:
        raise BadRequest("nothing to change; 'tern topic set --help' lists what can be set")

    async def job(mq: "Client") -> Topic:
        return await mq.admin.set_topic(name, **changes)

    topic = use(url, job)
    if as_json:
        show_json(_fields(topic))
    else:
        show_facts(_facts(topic))


@app.command()
def delete(name: Name, yes: Yes = False, url: Url = URL, as_json: Json = False) -> None:
    """Delete a topic with its messages and groups. A new one of that name starts empty."""
    check_name("topic", name)
    confirm(f"Delete topic {name} with all its messages and groups?", yes=yes)

    async def job(mq: "Client") -> None:
        await mq.admin.delete_topic(name)

    use(url, job)
    if as_json:
        show_json({"deleted": name})
    else:
        say(f"topic {name} is deleted")


def _fields(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.id,
        "created_at": utc(topic.created_at_ms),
        "body_size_max": topic.settings.body_size_max,
        "closed": topic.settings.closed,
        "apps": topic.settings.apps,
        "rate": topic.settings.rate,
        "bytes_rate": topic.settings.bytes_rate,
        "over_limit": topic.settings.over_limit,
        "paused": topic.settings.paused,
        "consume_paused": topic.settings.consume_paused,
        "keep_ms": topic.settings.keep_ms,
        "master_key": topic.settings.master_key,
        "key_period_ms": topic.settings.key_period_ms,
    }


def _facts(topic: Topic) -> dict[str, object]:
    """The facts about a topic, for people."""
    settings = topic.settings
    facts = _fields(topic) | {
        "rate": limit.shown_rate(settings.rate),
        "bytes_rate": limit.shown_size_rate(settings.bytes_rate),
        "sending": "paused" if settings.paused else "running",
        "consuming": "paused" if settings.consume_paused else "running",
        "keep": shown_keep(settings.keep_ms),
        "bodies": _encryption(settings),
    }
    for name in ("paused", "consume_paused", "keep_ms", "master_key", "key_period_ms"):
        del facts[name]
    return facts


def _encryption(settings: TopicSettings) -> str:
    if not settings.master_key:
        return "plain"
    days = (settings.key_period_ms or KEY_PERIOD_MS) / DAY_MS
    return (
        f"encrypted under {settings.master_key}, another key every {days:g} days; keys, tags and "
        "properties stay readable"
    )
