"""One message: where it is, what is in it, what became of it; and sending one by hand."""

import asyncio
from typing import Any

from ternmq.api.bodies import KINDS, decoded
from ternmq.api.views.message_masks import MaskedView
from ternmq.client.model.message import Message
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.reading.find import Finding
from ternmq.client.reading.message_trace import MessageTrace, PlaceTrace
from ternmq.client.transport.fan_out import Missing
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest, Forbidden, TernError, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.units import parse_duration_ms
from ternmq.security.access.rights import missing as missing_right
from ternmq.wire.actions import Action

FOUND_MAX = 50
TRACE_S = 8.0
TOPICS_ASKED_MAX = 50
"""Of who may read some topics only."""


def looked_in(console: Console, topic: str = "") -> list[str | None]:
    """Topics that are asked one by one; None: all at once, which only who may read all of them
    can ask."""
    if topic:
        return [topic]
    if console.rights.reads():
        return [None]
    readable = [name for name in console.watch.snapshot.topics if console.rights.reads(name)]
    return list(readable[:TOPICS_ASKED_MAX])


async def find_message(
    console: Console, id: str, missing: Missing | None = None, topic: str = ""
) -> list[Finding]:
    """All places of a message; raises if there is none, and everybody was asked."""
    silent: Missing = {} if missing is None else missing
    found: list[Finding] = []
    places = looked_in(console, topic)
    if not places:
        raise missing_right(console.rights.user, Action.READ, "topic", "")
    for place in places:
        found = await console.mq.find(place, id=id, limit=FOUND_MAX, missing=silent)
        if found:
            break
    if not found:
        raise not_found(id, silent)
    return sorted(found, key=lambda each: each.lane != "topic")


def not_found(id: str, missing: Missing) -> TopicNotFound:
    where = f"; not asked: {', '.join(missing)}" if missing else ""
    return TopicNotFound(
        f"nobody has a message {id!r}: looked for in topics, dead letters, put aside, delayed. It "
        f"was never stored, or is older than what is kept{where}"
    )


async def trace_of(console: Console, id: str, topic: str = "") -> MessageTrace:
    """Where it is and what happened; without what happened where that takes too long."""
    try:
        async with asyncio.timeout(TRACE_S):
            return await _traced(console, id, topic)
    except TimeoutError:
        missing: Missing = {"delivery records": f"reading them took longer than {TRACE_S:g} s"}
        found = await find_message(console, id, missing, topic)
        places = [PlaceTrace(found=each, groups=[], complete=False) for each in found]
        return MessageTrace(places=places, missing=missing)


async def _traced(console: Console, id: str, topic: str) -> MessageTrace:
    """A copy among dead letters is for who may operate on their group; others are shown the
    message in its topic alone."""
    places = looked_in(console, topic)
    if places == [None]:
        try:
            return await console.mq.trace(id)
        except Forbidden:
            found = await console.mq.find(id=id, limit=FOUND_MAX, missing={})
            places = list({each.message.topic for each in found if each.lane == "topic"})
    if not places:
        raise missing_right(console.rights.user, Action.READ, "topic", "")
    trace = MessageTrace(places=[])
    for place in places:
        trace = await console.mq.trace(id, place)
        if trace.places or trace.delayed:
            break
    return trace


async def message_page(console: Console, asked: AskedUrl) -> ShownPage:
    id, show = asked.names["id"], asked.text("show", "auto")
    trace = await trace_of(console, id, asked.text("topic"))
    places = sorted(trace.places, key=lambda each: each.found.lane != "topic")
    if not places and not trace.delayed:
        raise not_found(id, trace.missing)
    view = await console.masked(asked)
    facts: dict[str, Any] = {"id": id, "places": places, "delayed": trace.delayed}
    facts |= {
        "missing": trace.missing,
        "show": show,
        "kinds": KINDS,
        "message": None,
        "content": None,
        "masked": False,
    }
    if places:
        facts |= _message_facts(places[0].found.message, show, view)
    else:
        facts |= await _waiting_facts(console, id, show, view)
    copy = CopyAs(
        cli=f"tern trace {id} --url {console.url}",
        curl=curl_get(console.origin, f"/messages/{id}"),
        python=f"await mq.trace({id!r})",
    )
    return ShownPage(
        template="message.html", title=f"Message {id}", section="topics", facts=facts, copy=copy
    )


async def _waiting_facts(console: Console, id: str, show: str, view: MaskedView) -> dict[str, Any]:
    """What is in a message that is not due yet."""
    try:
        contents = await console.mq.admin.delays.show(id)
    except Forbidden:
        contents = []  # It is by its id alone, so of any topic.
    facts: dict[str, Any] = {"body": None, "content": None}
    if contents:
        content = contents[0]
        shown = view.of(content.row.topic, content.body, content.properties)
        facts = {"body": decoded(shown.body, show), "content": content, "masked": shown.masked}
        facts["properties"] = shown.properties
    return facts


def _message_facts(message: Message, show: str, view: MaskedView) -> dict[str, Any]:
    shown = view.of(message.topic, message.body, message.properties)
    noted = shown.properties
    return {
        "message": message,
        "masked": shown.masked,
        "body": decoded(shown.body, show),
        "properties": {name: value for name, value in noted.items() if not name.startswith("%")},
        "notes": {
            name[1:].replace("_", " "): value
            for name, value in noted.items()
            if name.startswith("%") and name != "%error_traceback"
        },
        "traceback": noted.get("%error_traceback", ""),
        "stored_at_ms": int(message.stored_at.timestamp() * 1000),
        "born_at_ms": int(message.born_at.timestamp() * 1000),
    }


async def send_page(console: Console, asked: AskedUrl) -> ShownPage:
    """A form, empty or like a message that is there."""
    topic = check_name("topic", asked.names["topic"])
    console.rights.check([(Action.PUBLISH, "topic", topic)])
    like = asked.text("like")
    fields = {"body": "", "key": "", "tag": "", "delay": ""}
    if like:
        message = (await find_message(console, like, topic=asked.text("topic")))[0].message
        view = await console.masked(asked)
        shown = view.of(message.topic, message.body, message.properties)
        fields["body"] = decoded(shown.body, "text").text
        fields["key"], fields["tag"] = message.key or "", message.tag or ""
    facts = {"topic": topic, "fields": fields, "receipt": None}
    return ShownPage(template="send.html", title=f"Send to {topic}", section="topics", facts=facts)


async def sent_page(console: Console, asked: AskedUrl) -> ShownPage:
    topic = check_name("topic", asked.names["topic"])
    fields = {name: asked.query.get(name, "") for name in ("body", "key", "tag", "delay")}
    options: SendOptions = {}
    if fields["key"]:
        options["key"] = fields["key"]
    if fields["tag"]:
        options["tag"] = fields["tag"]
    if fields["delay"]:
        try:
            options["delay"] = parse_duration_ms(fields["delay"]) / 1000
        except TernError:
            raise BadRequest(f"delay is {fields['delay'][:40]!r}; write 30s or 1h30m") from None
    receipt = await console.mq.send(topic, fields["body"].replace("\r\n", "\n").encode(), **options)
    facts = {"topic": topic, "fields": fields, "receipt": receipt}
    return ShownPage(template="send.html", title=f"Sent to {topic}", section="topics", facts=facts)
