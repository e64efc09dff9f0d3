"""Messages of a topic: by time, filter, key, tag and text; newest first, page by page, or live."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ternmq.api.bodies import preview
from ternmq.api.cursors import read_positions
from ternmq.api.views.browse import BrowseWanted
from ternmq.api.views.message_masks import MaskedView
from ternmq.client.model.message import Message
from ternmq.client.reading.written_start import parse_start
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest

ROWS = 50
ROWS_MAX = 200
FIELDS = ("from", "to", "where", "key", "tag", "text", "order")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list; what cannot be read of a damaged one is shown as such."""

    id: str
    sequence: int
    broker_group: str
    stored_at_ms: int
    key: str
    tag: str
    app: str
    preview: str
    size: int


def row_of(message: Message, view: MaskedView) -> MessageRow:
    def read(name: str, otherwise: Any) -> Any:
        try:
            return getattr(message, name)
        except Exception:
            return otherwise

    body = read("body", None)
    size = len(body or b"")
    if body is not None:
        body = view.of(read("topic", ""), body, read("properties", {})).body
    return MessageRow(
        id=read("id", ""),
        sequence=message.sequence,
        broker_group=message.broker_group,
        stored_at_ms=int(message.stored_at.timestamp() * 1000),
        key=read("key", "") or read("order_key", "") or "",
        tag=read("tag", "") or "",
        app=read("app", ""),
        preview="(unreadable)" if body is None else preview(body),
        size=size,
    )


def moment_of(name: str, text: str) -> datetime | None:
    """A time as it is typed: 10m (ago), or a date; empty is none."""
    if not text:
        return None
    point = parse_start(text, now=datetime.now(UTC))
    if not isinstance(point, datetime):
        raise BadRequest(f"{name} is {text[:40]!r}; write how long ago (10m), or 2026-01-31T12:00Z")
    return point


def wanted_of(asked: AskedUrl, topic: str) -> BrowseWanted:
    order: Any = asked.text("order", "newest")
    return BrowseWanted(
        topic=topic,
        order=order,
        start=moment_of("from", asked.text("from")),
        end=moment_of("to", asked.text("to")),
        where=asked.text("where"),
        key=asked.text("key"),
        tag=asked.text("tag"),
        text=asked.text("text"),
        limit=asked.count("limit", ROWS, ROWS_MAX),
        cursor=asked.text("after"),
    )


async def messages_page(console: Console, asked: AskedUrl) -> ShownPage:
    topic = asked.names["topic"]
    wanted = wanted_of(asked, topic)
    read_positions(wanted.cursor)
    tail = asked.text("tail") == "on"
    await console.mq.admin.topic(topic)
    view = await console.masked(asked)
    view.check_search(topic, text=wanted.text, where=wanted.where)
    page = await console.browser.page(wanted)
    query = {name: asked.text(name) for name in FIELDS}
    first, end = page.bounds
    facts = {
        "topic": topic,
        "rows": [row_of(message, view) for message in page.messages],
        "found": page,
        "wanted": wanted,
        "query": query,
        "tail": tail,
        "kept": end - first,
        "several": len({message.broker_group for message in page.messages}) > 1,
    }
    copy = CopyAs(
        cli=f"tern browse {topic} --url {console.url}",
        curl=curl_get(console.origin, f"/topics/{topic}/messages", query),
        python=f"async for message in mq.read({topic!r}): ...",
    )
    return ShownPage(
        template="messages.html",
        title=f"Messages of {topic}",
        section="topics",
        facts=facts,
        copy=copy,
        live=tail,
    )
