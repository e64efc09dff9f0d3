"""Messages that wait for a person: dead letters by what went wrong, and what topics refused."""

from ternmq.api.bodies import preview
from ternmq.api.views.error_kinds import alike
from ternmq.api.views.letters import LetterBox, LettersRead
from ternmq.api.views.message_masks import MaskedView
from ternmq.client.reading.letters import Letter
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.ids import check_name

LISTED_MAX = 100
ROWS = 100
TOPICS_SHOWN = 5


async def dead_list(console: Console, asked: AskedUrl) -> ShownPage:
    """Groups that ever had dead letters, and how many are open."""
    dead: dict[str, int] = {}
    topics: dict[str, list[str]] = {}
    for view in console.watch.snapshot.groups.values():
        if view.dead:
            dead[view.name] = dead.get(view.name, 0) + view.dead
            topics.setdefault(view.name, []).append(view.topic)
    names = sorted(dead, key=lambda name: -dead[name])[:LISTED_MAX]
    rows = [
        (
            name,
            await LetterBox(mq=console.mq, group=name).count()
            if console.rights.opens_letters(name, topics[name])
            else None,
            dead[name],
        )
        for name in names
    ]
    put_aside = [view for view in console.watch.snapshot.topics.values() if view.put_aside]
    facts = {"rows": rows, "more": len(dead) - len(names), "put_aside": put_aside}
    copy = CopyAs(
        cli=f"tern dead list GROUP --url {console.url}", curl=curl_get(console.origin, "/dead")
    )
    return ShownPage(
        template="dead.html", title="Dead letters", section="dead", facts=facts, copy=copy
    )


def _facts(read: LettersRead, like: str, view: MaskedView, topic: str = "") -> dict[str, object]:
    kinds = alike((each.message.id, each.notes) for each in read.letters)
    chosen = read.letters
    if like:
        marks = {f"{kind.mark} {kind.place}": kind for kind in kinds}
        kind = marks.get(like)
        if kind is not None:
            chosen = [x for x in chosen if alike([(x.message.id, x.notes)])[0].mark == kind.mark]
    return {
        "kinds": kinds,
        "like": like,
        "letters": [(each, preview(_body(each, view, topic))) for each in chosen[:ROWS]],
        "chosen": len(chosen),
        "open": read.open,
        "looked_at": len(read.letters),
        "missing": read.missing,
    }


def _body(letter: Letter, view: MaskedView, topic: str) -> bytes:
    """As whoever looks may see it; of the topic that it is from."""
    return view.of(
        topic or str(letter.notes.get("%topic", "")), letter.message.body, letter.notes
    ).body


async def dead_page(console: Console, asked: AskedUrl) -> ShownPage:
    group = check_name("group", asked.names["group"])
    read = await LetterBox(mq=console.mq, group=group).read()
    topics = [view.topic for view in console.watch.snapshot.named(group)][:TOPICS_SHOWN]
    view = await console.masked(asked)
    listed = _facts(read, asked.text("like"), view)
    facts = {"box": "dead", "name": group, "topics": topics, **listed}
    copy = CopyAs(
        cli=f"tern dead list {group} --url {console.url}",
        curl=curl_get(console.origin, f"/dead/{group}"),
        python=f"mq.read('%dead.{group}')",
    )
    title = f"Dead letters of {group}"
    return ShownPage(template="letters.html", title=title, section="dead", facts=facts, copy=copy)


async def refused_page(console: Console, asked: AskedUrl) -> ShownPage:
    topic = check_name("topic", asked.names["topic"])
    read = await LetterBox(mq=console.mq, topic=topic).read()
    view = await console.masked(asked)
    listed = _facts(read, asked.text("like"), view, topic)
    facts = {"box": "refused", "name": topic, "topics": [], **listed}
    copy = CopyAs(
        cli=f"tern dead list --topic {topic} --url {console.url}",
        curl=curl_get(console.origin, f"/refused/{topic}"),
    )
    title = f"Refused by {topic}"
    return ShownPage(template="letters.html", title=title, section="dead", facts=facts, copy=copy)
