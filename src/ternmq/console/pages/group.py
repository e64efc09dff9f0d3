"""Consumer groups: the list, and one with its ledger, members, keys that stand still, settings."""

from collections.abc import Callable
from typing import Any

from ternmq.api.views.attention import waiting
from ternmq.api.views.snapshot import NEVER, GroupView
from ternmq.client.admin.merge_answers import merged_consumers, merged_groups
from ternmq.client.inspection.times import WaitAndHandle
from ternmq.console.charts import brief_time, spread
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.formats import duration, number, rate
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.console.pages.topic import page_after
from ternmq.core.errors import BadRequest, GroupNotFound

ROWS = 50
GroupSorting = Callable[[GroupView], Any]
SORTS: dict[str, GroupSorting] = {
    "age": lambda view: (-view.age_ms, -view.open, view.topic, view.name),
    "ready": lambda view: (-view.ready, view.topic, view.name),
    "dead": lambda view: (-view.dead, view.topic, view.name),
    "growth": lambda view: (-view.growth, view.topic, view.name),
    "rate": lambda view: (-view.rate_out, view.topic, view.name),
    "name": lambda view: (view.topic, view.name),
}


async def group_list(console: Console, asked: AskedUrl) -> ShownPage:
    snapshot = console.watch.snapshot
    sort, like = asked.text("sort", "age"), asked.text("q")
    if sort not in SORTS:
        raise BadRequest(f"sort is {sort[:40]!r}; it can be {', '.join(SORTS)}")
    found = [
        view
        for view in snapshot.groups.values()
        if like.lower() in f"{view.topic} {view.name}".lower()
    ]
    found.sort(key=SORTS[sort])
    keys = [f"{view.topic}/{view.name}" for view in found]
    first, following = page_after(keys, asked.text("after"), ROWS)
    console.watch.shows(found[first : first + ROWS])
    facts = {
        "groups": found[first : first + ROWS],
        "total": len(found),
        "first": first,
        "sort": sort,
        "sorts": list(SORTS),
        "like": like,
        "following": following,
    }
    copy = CopyAs(
        cli=f"tern group list --url {console.url}",
        curl=curl_get(console.origin, "/groups", {"q": like, "sort": sort}),
        python="await mq.admin.groups()",
    )
    return ShownPage(
        template="groups.html", title="Groups", section="groups", facts=facts, copy=copy, live=True
    )


def why_slow(view: GroupView, rate_in: float) -> str:
    """How a group is doing, as one sentence."""
    ready = waiting(view.ready)
    if view.paused:
        return f"It is paused: {ready}, and nothing is handed out."
    if not view.open:
        return "Everything is handled."
    if view.held_back:
        return f"It is held back ({view.held_back}): {ready}."
    if not view.members:
        return f"Nobody consumes: {ready}."
    if not view.ready and view.counts["waiting_retry"]:
        failed = number(view.counts["waiting_retry"])
        return f"Nothing is ready; {failed} messages failed and wait for their next attempt."
    if not view.ready:
        return f"Its consumers hold all that is open: {number(view.counts['in_flight'])} messages."
    if not view.rate_out:
        held = number(view.counts["in_flight"])
        return f"Its consumers take nothing: they hold {held} messages and have acked none lately."
    pace = f"{rate(view.rate_out)} go out, {rate(rate_in)} come in"
    left = view.empty_in_s
    ending = "it does not become less" if left == NEVER else f"empty in {duration(left * 1000)}"
    return f"{ready}; {pace}: {ending}."


SHARES = ((0.5, "half of them"), (0.95, "95 %"), (0.99, "99 %"))


def shown_times(times: WaitAndHandle) -> list[dict[str, Any]]:
    """How long messages wait and are worked on: of the last minutes, or else since the start."""
    found: list[dict[str, Any]] = []
    for title, text, lately, ever in (
        ("Wait", "from stored until handed out", times.wait, times.wait_ever),
        ("Handle", "from handed out until acked", times.handle, times.handle_ever),
    ):
        seen = lately if lately.rows else ever
        shares = [(words, brief_time(seen.within(each) or 0.0)) for each, words in SHARES]
        within = ", ".join(f"{words} within {time}" for words, time in shares)
        found.append(
            {
                "title": title,
                "text": text,
                "rows": seen.rows,
                "since": "last 5 to 10 min" if lately.rows else "since the broker started",
                "shares": shares,
                "chart": spread(seen.bounds_s, seen.counts, label=f"{title}: {within}"),
            }
        )
    return found


async def group_page(console: Console, asked: AskedUrl) -> ShownPage:
    topic, name = asked.names["topic"], asked.names["group"]
    snapshot = console.watch.snapshot
    admin = console.mq.admin.tolerant()
    found = await admin.groups(topic, name)
    if not found:
        raise GroupNotFound(f"topic {topic} has no group {name}")
    view = snapshot.groups.get((topic, name))
    if view is None:
        view = (await console.watch.after(snapshot.number)).groups.get((topic, name))
    if view is None:
        raise GroupNotFound(f"topic {topic} has no group {name}, or its broker is away")
    flow = snapshot.topics.get(topic)
    console.watch.shows([view], [flow] if flow is not None else [])
    rights = console.rights
    keys = await admin.group_keys(topic, name) if rights.operates(topic, name) else None
    leases = await admin.leases(topic, name, ROWS)
    waiting = await admin.waiting(topic, name, ROWS) if rights.reads(topic) else None
    times = await admin.group_times(topic, name)
    settings = merged_groups(found)[0].settings
    facts = {
        "view": view,
        "lines": merged_groups(found),
        "members": merged_consumers(member for each in found for member in each.members),
        "paused_sessions": settings.paused_sessions,
        "keys": keys,
        "leases": leases,
        "waiting": waiting,
        "times_shown": shown_times(times),
        "settings": {field: getattr(settings, field) for field in settings.__struct_fields__},
        "sentence": why_slow(view, flow.rate_in if flow else 0.0),
        "missing": admin.missing,
    }
    copy = CopyAs(
        cli=f"tern group show {topic} {name} --url {console.url}",
        curl=curl_get(console.origin, f"/topics/{topic}/groups/{name}"),
        python=f"await mq.admin.groups({topic!r}, {name!r})",
    )
    return ShownPage(
        template="group.html",
        title=f"{name} on {topic}",
        section="groups",
        facts=facts,
        copy=copy,
        live=True,
    )
