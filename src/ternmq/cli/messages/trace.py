"""`tern trace` and `tern explain`: one message, what happened to it, and why it is where it is."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import message_fields, note, say, show_json, show_table, utc
from ternmq.cli.terminal.partial_answers import end_incomplete

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.reading.message_trace import GroupTrace, MessageTrace, PlaceTrace

EXIT_NOTHING = 1

MessageId = Annotated[str, typer.Argument(metavar="ID", help="26 characters, or hex.")]
OnlyTopic = Annotated[str | None, typer.Option("--topic", help="Only in this topic.")]


def trace(
    message_id: MessageId, topic: OnlyTopic = None, url: Url = URL, as_json: Json = False
) -> None:
    """Show what happened to one message, in every group, and what it waits for."""
    found = _ask(message_id, topic, url)
    if as_json:
        show_json(_fields(found))
    else:
        for place in found.places:
            _show_place(place)
        _show_delayed(found)
    _end(found, message_id)


def explain(
    message_id: MessageId, topic: OnlyTopic = None, url: Url = URL, as_json: Json = False
) -> None:
    """Say of one message where it is and why, one sentence for each group."""
    found = _ask(message_id, topic, url)
    if as_json:
        show_json([_sentence(place, group) for place in found.places for group in place.groups])
    else:
        for place in found.places:
            for group in place.groups:
                say(f"{_where(place)}, group {group.state.group}: {group.why}")
            if not place.groups:
                say(f"{_where(place)}: no group consumes this topic")
        _show_delayed(found)
    _end(found, message_id)


def _ask(message_id: str, topic: str | None, url: str) -> "MessageTrace":
    async def job(mq: "Client") -> "MessageTrace":
        return await mq.trace(message_id, topic)

    return use(url, job)


def _where(place: "PlaceTrace") -> str:
    message = place.found.message
    lane = "" if place.found.lane == "topic" else f" ({place.found.lane})"
    return f"topic {message.topic}{lane}, sequence {message.sequence}"


def _sentence(place: "PlaceTrace", group: "GroupTrace") -> dict[str, Any]:
    message = place.found.message
    return {
        "topic": message.topic,
        "lane": place.found.lane,
        "sequence": message.sequence,
        "broker_group": place.found.broker_group,
        "group": group.state.group,
        "state": group.state.state,
        "why": group.why,
    }


def _fields(found: "MessageTrace") -> dict[str, Any]:
    return {
        "places": [
            {
                "message": message_fields(place.found.message),
                "lane": place.found.lane,
                "broker_group": place.found.broker_group,
                "complete": place.complete,
                "groups": [
                    {"state": group.state, "why": group.why, "events": group.events}
                    for group in place.groups
                ],
            }
            for place in found.places
        ],
        "delayed": [
            {"topic": row.topic, "due_at": utc(row.due_at_ms), "state": row.state}
            for row in found.delayed
        ],
    }


def _show_place(place: "PlaceTrace") -> None:
    message = place.found.message
    say(f"{_where(place)}, stored {utc(message.stored_at)} by {message.app}")
    for group in place.groups:
        say(f"\ngroup {group.state.group}: {group.why}")
        if group.events:
            show_table(
                ["when", "what", "#attempt", "who", "error"],
                [
                    (
                        utc(event.at_ms),
                        event.kind.replace("_", " "),
                        event.attempt or None,
                        event.holder.app or event.holder.session[:8] or None,
                        event.error or None,
                    )
                    for event in group.events
                ],
            )
    if not place.groups:
        say("no group consumes this topic")
    if not place.complete:
        note("delivery records since it was stored are not all kept; the archive may have them")


def _show_delayed(found: "MessageTrace") -> None:
    for row in found.delayed:
        say(f"topic {row.topic}: with a delay server, due {utc(row.due_at_ms)} ({row.state})")


def _end(found: "MessageTrace", message_id: str) -> None:
    end_incomplete(found.missing)
    if not found.places and not found.delayed:
        note(f"no message {message_id}: it was never stored under this id, or is not kept any more")
        raise typer.Exit(EXIT_NOTHING)
