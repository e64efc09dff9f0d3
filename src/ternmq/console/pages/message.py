"""One message: where it is, what is in it, what became of it; and sending one by hand."""

from typing import Any

from ternmq.api.bodies import KINDS, decoded
from ternmq.client.client import Client
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.reading.find import Finding
from ternmq.client.transport.fan_out import Missing
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest, TernError, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.units import parse_duration_ms
from ternmq.wire.messages.delays import DelayRow

FOUND_MAX = 50


async def find_message(console: Console, id: str, missing: Missing | None = None) -> list[Finding]:
    """All places of a message; raises if there is none, and everybody was asked."""
    silent: Missing = {} if missing is None else missing
    found = await console.mq.find(id=id, limit=FOUND_MAX, missing=silent)
    if not found:
        where = f"; not asked: {', '.join(silent)}" if silent else ""
        raise TopicNotFound(
            f"no broker has a message {id!r}: it was never stored, is not due yet, or is older "
            f"than what is kept{where}"
        )
    return sorted(found, key=lambda each: each.lane != "topic")


async def delayed_row(mq: Client, id: str) -> DelayRow | None:
    """The message among those that wait for their time."""
    try:
        rows = await mq.admin.delays.rows(id=id, limit=1)
    except TernError:
        return None  # No delay server, or it is away: the strip says so.
    return rows[0] if rows else None


async def message_page(console: Console, asked: AskedUrl) -> ShownPage:
    id, show = asked.names["id"], asked.text("show", "auto")
    missing: Missing = {}
    row = await delayed_row(console.mq, id)
    try:
        found = await find_message(console, id, missing)
    except TopicNotFound:
        if row is None:
            raise
        found = []
    facts: dict[str, Any] = {"id": id, "found": found, "row": row, "missing": missing}
    facts |= {"show": show, "kinds": KINDS, "body": None, "groups": [], "message": None}
    if found:
        message = found[0].message
        facts["message"] = message
        facts["body"] = decoded(message.body, show)
        facts["properties"] = {
            name: value for name, value in message.properties.items() if not name.startswith("%")
        }
        facts["notes"] = {
            name[1:].replace("_", " "): value
            for name, value in message.properties.items()
            if name.startswith("%") and name != "%error_traceback"
        }
        facts["traceback"] = message.properties.get("%error_traceback", "")
        facts["groups"] = console.watch.snapshot.groups_of(message.topic)
    copy = CopyAs(
        cli=f"tern find --id {id} --url {console.url}",
        curl=curl_get(console.origin, f"/messages/{id}"),
        python=f"await mq.find(id={id!r})",
    )
    return ShownPage(
        template="message.html", title=f"Message {id}", section="topics", facts=facts, copy=copy
    )


async def send_page(console: Console, asked: AskedUrl) -> ShownPage:
    """A form, empty or like a message that is there."""
    topic = check_name("topic", asked.names["topic"])
    like = asked.text("like")
    fields = {"body": "", "key": "", "tag": "", "delay": ""}
    if like:
        message = (await find_message(console, like))[0].message
        fields["body"] = decoded(message.body, "text").text
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
