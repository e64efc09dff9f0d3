"""A page: what was asked for, what is shown, and the place where both meet.

A page function gets the `Console` (client, watch, clock) and an `AskedUrl` (nothing but the URL)
and returns a `ShownPage`: a template with its facts. So the same function answers a browser, feeds
the live stream of that URL, and is called by tests. All state of a page is in its URL.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from ternmq.api.caller_rights import EVERYTHING, CallerRights
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.message_masks import MaskedView, MessageMasks
from ternmq.api.views.watch import LooksShared
from ternmq.client.client import Client
from ternmq.client.documents.documents import RegistryDocuments
from ternmq.console.copy_as import CopyAs
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What every page needs."""

    mq: Client
    watch: LooksShared
    browser: MessageBrowser
    clock: Clock
    documents: RegistryDocuments
    """Of the registry, as the console's own user: not of whoever looks."""
    masks: MessageMasks
    rights: CallerRights = EVERYTHING
    """Of whoever looks."""
    url: str
    """Of the cluster, for texts that people copy; without a password."""
    origin: str
    """Of this console: http://127.0.0.1:7780."""

    async def masked(self, asked: "AskedUrl") -> MaskedView:
        """What whoever looks may see of messages; `unmask=1` in the URL asks for all."""
        return await self.masks.view(self.rights, unmask=asked.text("unmask") == "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedUrl:
    """A URL of ours, taken apart."""

    path: str
    names: Mapping[str, str] = field(default_factory=dict)
    """What stands in the path."""
    query: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, otherwise: str = "") -> str:
        return self.query.get(name, otherwise).strip()

    def count(self, name: str, otherwise: int, most: int) -> int:
        text = self.text(name)
        if not text:
            return otherwise
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= most):
            raise BadRequest(f"{name} is {text[:40]!r}; it is a number from 1 to {most}")
        return int(text)

    def with_(self, **changes: object) -> str:
        """This URL with some of its query changed; an empty value takes one out."""
        query = {**self.query, **{name: str(value) for name, value in changes.items()}}
        kept = {name: value for name, value in query.items() if value}
        return f"{quote(self.path)}?{urlencode(kept)}" if kept else quote(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPage:
    """What is shown."""

    template: str
    title: str
    section: str = ""
    """Which entry of the menu it belongs to."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    copy: CopyAs = field(default_factory=CopyAs)
    live: bool = False
    """Its `live` block is sent again whenever it changes."""
    status: int = 200


PageFunction = Callable[[Console, AskedUrl], Awaitable[ShownPage]]


def own_path(text: str) -> str:
    """Where to go: a path of ours that was given; of anything else, the first page."""
    fine = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if fine else "/"


def path_of(*parts: str) -> str:
    """A path whose parts are names that others chose."""
    return "/" + "/".join(quote(part, safe="") for part in parts)
