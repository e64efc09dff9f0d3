"""Pages as HTML: the templates, and the words and pictures that they may use.

Everything is escaped by the template engine unless a drawing made it; a name that is missing in a
template is an error, not an empty place.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ternmq import __version__
from ternmq.api.action_rights import why_not
from ternmq.api.caller_rights import CallerRights
from ternmq.api.views.snapshot import Snapshot
from ternmq.console import charts, formats
from ternmq.console.flow_map import flow_map
from ternmq.console.page import AskedUrl, Console, ShownPage, path_of
from ternmq.wire.actions import Action

FOLDER = Path(__file__).parent
MENU = (
    ("overview", "/", "Overview", "g o"),
    ("topics", "/topics", "Topics", "g t"),
    ("groups", "/groups", "Groups", "g g"),
    ("dead", "/dead", "Dead letters", "g d"),
    ("delayed", "/delayed", "Delayed", "g l"),
    ("half", "/half", "Transactions", "g x"),
    ("jobs", "/jobs", "Jobs", "g j"),
    ("clients", "/clients", "Clients", "g k"),
    ("cluster", "/cluster", "Cluster", "g c"),
    ("access", "/access", "Access", "g u"),
    ("requests", "/requests", "Requests", "g r"),
    ("api", "/api", "HTTP API", "g a"),
)
THEMES = ("light", "dark")


def leads_somewhere(section: str, rights: CallerRights) -> bool:
    """Is there anything on that page for this person?"""
    if section == "clients":
        return rights.runs_cluster
    if section == "jobs":
        return rights.may(Action.READ, "document", "job")
    if section in ("access", "requests"):
        return bool(rights.user)
    return section != "delayed" or rights.has_line(Action.DELAY)


def letters_from(snapshot: Snapshot) -> dict[str, list[str]]:
    """Of each group with dead letters, the topics that they are from."""
    found: dict[str, list[str]] = {}
    for view in snapshot.groups.values():
        if view.dead:
            found.setdefault(view.name, []).append(view.topic)
    return found


class Renderer:
    """Makes HTML of pages."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        names = ("number", "short", "rate", "size", "duration", "moment", "iso", "share", "plural")
        self._templates.filters |= {name: getattr(formats, name) for name in names}
        drawn = ("spark", "flow_chart", "ledger_bars", "columns", "gauge", "share_bar")
        self._templates.globals |= {name: getattr(charts, name) for name in drawn}
        self._templates.globals |= {
            "ago": formats.ago,
            "flow_map": flow_map,
            "path_of": path_of,
            "words": charts.WORDS,
        }

    def page(self, console: Console, asked: AskedUrl, page: ShownPage, theme: str = "") -> str:
        """The whole page."""
        facts = self._facts(console, asked, page) | {"theme": theme if theme in THEMES else ""}
        return self._templates.get_template(page.template).render(facts)

    def live(self, console: Console, asked: AskedUrl, page: ShownPage) -> str:
        """Only what changes: the strip about trouble, and the `live` block."""
        facts = self._facts(console, asked, page)
        template = self._templates.get_template(page.template)
        strip = self._templates.get_template("strip.html").render(facts)
        return strip + "".join(template.blocks["live"](template.new_context(facts)))

    def bare(self, template: str, facts: Mapping[str, Any], theme: str = "") -> str:
        """A page for who is not in yet: nothing of the cluster is on it."""
        known = {"theme": theme if theme in THEMES else "", "version": __version__}
        return self._templates.get_template(template).render(known | dict(facts))

    def fragment(self, template: str, facts: Mapping[str, Any]) -> Markup:
        return Markup(self._templates.get_template(template).render(facts))

    def _facts(self, console: Console, asked: AskedUrl, page: ShownPage) -> dict[str, Any]:
        snapshot: Snapshot = console.watch.snapshot
        asked_of = {
            "can": console.rights,
            "why_not": partial(why_not, console.rights),
            "letters_from": letters_from(snapshot),
        }
        return {
            "page": page,
            "asked": asked,
            "menu": [entry for entry in MENU if leads_somewhere(entry[0], console.rights)],
            "m": self._templates.get_template("macros.html").make_module(asked_of),
            **asked_of,
            "snapshot": snapshot,
            "now_ms": console.clock.now_ms(),
            "cluster_url": console.url,
            "version": __version__,
            **page.facts,
        }
