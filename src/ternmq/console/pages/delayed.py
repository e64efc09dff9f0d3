"""Messages for later: when they are due, which they are, and changing that."""

from ternmq.client.admin.delays import DelayPage
from ternmq.client.model.times import time_from_ms
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.ids import id_to_text
from ternmq.wire.actions import Action
from ternmq.wire.messages.delays import DelayRow

ROWS = 100
TOPICS_SHOWN = 200
SPANS = {"hour": (60_000, 60), "day": (3_600_000, 24), "month": (86_400_000, 30)}
TIME_MAX_MS = 253_402_300_799_999


def id_text(row: DelayRow) -> str:
    """As people write it."""
    return id_to_text(int.from_bytes(row.id, "big")) if len(row.id) == 16 else row.id.hex()


def _ms(asked: AskedUrl, name: str) -> int:
    text = asked.text(name)
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and int(text[:16]) <= TIME_MAX_MS):
        raise BadRequest(f"{name} is {text[:40]!r}; it is milliseconds since 1970")
    return int(text)


def _choose_topic(console: Console, asked: AskedUrl, span: str) -> ShownPage:
    """For who may look at delayed messages of some topics only."""
    topics = [name for name in console.watch.snapshot.topics if console.rights.delays(name)]
    if not topics:
        console.rights.check([(Action.DELAY, "topic", "")])
    facts = {"topics": topics[:TOPICS_SHOWN], "span": span}
    return ShownPage(
        template="delayed_topics.html", title="Delayed", section="delayed", facts=facts
    )


async def delayed_page(console: Console, asked: AskedUrl) -> ShownPage:
    delays = console.mq.admin.delays
    topic, key, span = asked.text("topic"), asked.text("key"), asked.text("span", "day")
    if span not in SPANS:
        raise BadRequest(f"span is {span[:40]!r}; it can be {', '.join(SPANS)}")
    from_ms, to_ms = _ms(asked, "from"), _ms(asked, "to")
    trouble, ledger, hours, hour_ms = "", [], [], 3_600_000
    page = DelayPage(rows=[], following="")
    if not console.rights.delays(topic):
        if topic:
            console.rights.check([(Action.DELAY, "topic", topic)])
        return _choose_topic(console, asked, span)
    try:
        page = await delays.page(
            topic=topic,
            key=key,
            start=time_from_ms(from_ms) if from_ms else None,
            end=time_from_ms(to_ms) if to_ms else None,
            limit=ROWS,
            after=asked.text("after"),
        )
        counts = await delays.counts(topic)
        hours, hour_ms = counts.hours, counts.hour_ms
        ledger = await delays.ledger(topic)
    except TernError as error:
        trouble = error.message
    step_ms, count = SPANS[span]
    facts = {
        "rows": [(id_text(row), row) for row in page.rows],
        "ledger": ledger,
        "pending": sum(line.pending for line in ledger),
        "hours": hours,
        "step_ms": max(step_ms, hour_ms),
        "count": count,
        "span": span,
        "spans": [name for name in SPANS if SPANS[name][0] >= hour_ms or name == "day"],
        "topic": topic,
        "key": key,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "trouble": trouble,
        "following": page.following,
    }
    copy = CopyAs(
        cli=f"tern delay list --url {console.url}",
        curl=curl_get(console.origin, "/delayed", {"topic": topic, "key": key}),
        python="await mq.admin.delays.rows()",
    )
    return ShownPage(
        template="delayed.html", title="Delayed", section="delayed", facts=facts, copy=copy
    )
