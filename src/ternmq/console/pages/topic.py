"""Topics: the list, and one with its flow, groups, refusals and settings."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ternmq.api.cursors import names_cursor, read_names
from ternmq.api.views.snapshot import TopicView
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest, TopicNotFound

ROWS = 50
SENDERS_SHOWN = 20
TopicSorting = Callable[[TopicView], Any]
SORTS: dict[str, TopicSorting] = {
    "name": lambda view: view.name,
    "rate": lambda view: (-view.rate_in, view.name),
    "refused": lambda view: (-view.refused, view.name),
    "newest": lambda view: (-view.topic.created_at_ms, view.name),
}


def sorted_topics(views: Iterable[TopicView], sort: str, like: str) -> list[TopicView]:
    if sort not in SORTS:
        raise BadRequest(f"sort is {sort[:40]!r}; it can be {', '.join(SORTS)}")
    found = [view for view in views if like.lower() in view.name.lower()]
    return sorted(found, key=SORTS[sort])


def page_after(names: list[str], cursor: str, rows: int) -> tuple[int, str]:
    """Where the page begins, and the cursor of the one after it."""
    after = read_names(cursor)
    first = names.index(after) + 1 if after in names else 0
    end = first + rows
    return first, names_cursor(names[end - 1]) if end < len(names) else ""


async def topic_list(console: Console, asked: AskedUrl) -> ShownPage:
    snapshot = console.watch.snapshot
    sort, like = asked.text("sort", "name"), asked.text("q")
    found = sorted_topics(snapshot.topics.values(), sort, like)
    first, following = page_after([view.name for view in found], asked.text("after"), ROWS)
    shown = found[first : first + ROWS]
    groups_of = {view.name: snapshot.groups_of(view.name) for view in shown}
    console.watch.shows([each for found in groups_of.values() for each in found], shown)
    facts = {
        "topics": shown,
        "total": len(found),
        "first": first,
        "sort": sort,
        "like": like,
        "sorts": list(SORTS),
        "following": following,
        "groups_of": groups_of,
    }
    copy = CopyAs(
        cli=f"tern topic list --url {console.url}",
        curl=curl_get(console.origin, "/topics", {"q": like, "sort": sort}),
        python="await mq.admin.topics()",
    )
    return ShownPage(
        template="topics.html", title="Topics", section="topics", facts=facts, copy=copy, live=True
    )


async def topic_page(console: Console, asked: AskedUrl) -> ShownPage:
    name = asked.names["topic"]
    snapshot = console.watch.snapshot
    view = snapshot.topics.get(name)
    if view is None:
        topic = await console.mq.admin.topic(name)  # Made a moment ago, or not there: it says so.
        view = TopicView(topic=topic)
    groups = sorted(snapshot.groups_of(name), key=lambda each: (-each.open, each.name))
    console.watch.shows(groups, [view])
    admin = console.mq.admin.tolerant()
    bounds = {}
    if console.rights.reads(name):
        with suppress(TopicNotFound):
            bounds = await admin.seek_all(name, "earliest")
    figures = await admin.topic_figures(name)
    settings = view.topic.settings
    facts = {
        "view": view,
        "groups": groups,
        "kept": sum(each.end - each.first for each in bounds.values()),
        "ever": sum(each.end for each in bounds.values()),
        "bounds": bounds,
        "figures": figures,
        "refused": {
            reason: sum(each.refused.get(reason, 0) for each in figures)
            for reason in sorted({reason for each in figures for reason in each.refused})
        },
        "settings": {
            field: getattr(settings, field)
            for field in settings.__struct_fields__
            if field != "placement"
        },
        "senders": sorted(
            ((app, rate) for (app, of), rate in snapshot.senders.items() if of == name),
            key=lambda pair: -pair[1],
        )[:SENDERS_SHOWN],
        "missing": admin.missing,
    }
    copy = CopyAs(
        cli=f"tern topic show {name} --url {console.url}",
        curl=curl_get(console.origin, f"/topics/{name}"),
        python=f"await mq.admin.topic({name!r})",
    )
    return ShownPage(
        template="topic.html", title=name, section="topics", facts=facts, copy=copy, live=True
    )
