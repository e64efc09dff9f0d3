"""One box for everything: a message id, a key, the name of a topic or of a group."""

import re

from ternmq.client.transport.fan_out import Missing
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.console.pages.delayed import id_text
from ternmq.console.pages.message import looked_in
from ternmq.console.pages.messages import row_of
from ternmq.core.errors import TernError

NAMES_MAX = 20
FOUND_MAX = 50
_ID = re.compile(r"[0-9A-Za-z]{26}|([0-9a-fA-F]{2}){8,128}")


async def search_page(console: Console, asked: AskedUrl) -> ShownPage:
    """Looks everywhere side by side, and says for each place whether there was something."""
    words = asked.text("q")[:200]
    snapshot = console.watch.snapshot
    like = words.lower()
    missing: Missing = {}
    found, delayed, trouble = [], [], ""
    by_id = bool(_ID.fullmatch(words))
    if words and not looked_in(console):
        trouble = "You may not read messages, so only names are searched."
    elif words:
        try:
            for place in looked_in(console):
                found += await console.mq.find(
                    place,
                    id=words if by_id else None,
                    key=None if by_id else words,
                    limit=FOUND_MAX,
                    missing=missing,
                )
        except TernError as error:
            trouble = error.message
    if words and console.rights.delays():
        try:
            id, key = (words, "") if by_id else ("", words)
            rows = await console.mq.admin.delays.rows(id=id, key=key, limit=FOUND_MAX)
            delayed = [(id_text(row), row) for row in rows]
        except TernError as error:
            missing["delay servers"] = error.message
    view = await console.masked(asked)
    facts = {
        "words": words,
        "found": [(each.message.topic, each.lane, row_of(each.message, view)) for each in found],
        "delayed": delayed,
        "topics": [name for name in snapshot.topics if like and like in name.lower()][:NAMES_MAX],
        "groups": [view for view in snapshot.groups.values() if like and like in view.name.lower()][
            :NAMES_MAX
        ],
        "missing": missing,
        "trouble": trouble,
    }
    return ShownPage(template="search.html", title="Search", facts=facts)
