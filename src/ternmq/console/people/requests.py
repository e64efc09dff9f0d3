"""Asking for a right: a person says which and why, who may grant decides; kept in the registry.

A request is a document of the registry (kind `request`), written by the console's own user with the
name of the person who logged in; it ends by itself after a month. Approving gives the line as the
person who approves, so the servers decide whether that person may, and their audit has the name;
then it is marked, at the version that was seen: of two who decide at once the second is told.
"""

import secrets
from typing import Any, Literal

import msgspec

from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest, Conflict, OverLimit, VersionMismatch
from ternmq.security.access.access_book import shown
from ternmq.security.access.rights import ACTIONS_GRANTED, check_grant
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import Grant

KIND = "request"
KEPT_S = 30 * 86_400.0
OF_USER_MAX = 20
REQUESTS_MAX = 500
REASON_MAX = 500
WORDS = {"open": "waits", "approved": "approved", "refused": "refused"}


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A right that a person asked for, and what became of it."""

    user: str
    right: str
    resource: str
    reason: str
    at_ms: int
    state: Literal["open", "approved", "refused"] = "open"
    by: str = ""
    """Who decided."""

    @property
    def line(self) -> Grant:
        return Grant(action=self.right, resource=self.resource)

    @property
    def words(self) -> str:
        return shown(self.line)


async def _all(console: Console) -> list[tuple[str, int, AccessRequest]]:
    """Names, versions and bodies, the newest first; what cannot be read is left out."""
    found: list[tuple[str, int, AccessRequest]] = []
    page = await console.documents.page(KIND, limit=REQUESTS_MAX, bodies=True)
    for document in page.documents:
        try:
            body = msgspec.json.decode(document.body, type=AccessRequest)
        except msgspec.MsgspecError:
            continue
        found.append((document.name, document.version, body))
    return sorted(found, key=lambda each: -each[2].at_ms)


async def requests_page(console: Console, asked: AskedUrl) -> ShownPage:
    """One's own; all of them for who may grant."""
    return await _page(console)


async def _page(console: Console, outcome: str = "") -> ShownPage:
    rights = console.rights
    if not rights.user:
        raise BadRequest("security is off here: everybody may do everything, nothing is to ask for")
    every = await _all(console)
    rows = [each for each in every if rights.grants or each[2].user == rights.user]
    facts: dict[str, Any] = {
        "rows": rows,
        "words": WORDS,
        "actions_granted": [str(action) for action in ACTIONS_GRANTED],
        "outcome": outcome,
    }
    return ShownPage(template="requests.html", title="Requests", section="requests", facts=facts)


async def ask(console: Console, asked: AskedUrl) -> ShownPage:
    """Of the form: a right, on what, and why."""
    user = console.rights.user
    if not user:
        raise BadRequest("security is off here: there is nothing to ask for")
    line = check_grant(Grant(action=asked.text("right"), resource=asked.text("resource")))
    reason = asked.text("reason")
    if not 1 <= len(reason) <= REASON_MAX:
        raise BadRequest(f"say why in 1 to {REASON_MAX} characters")
    every = await _all(console)
    own = [each for each in every if each[2].user == user and each[2].state == "open"]
    if len(own) >= OF_USER_MAX or len(every) >= REQUESTS_MAX:
        raise OverLimit(f"{len(own)} requests of yours wait; let somebody decide them first")
    wanted = AccessRequest(
        user=user,
        right=line.action,
        resource=line.resource,
        reason=reason,
        at_ms=console.clock.now_ms(),
    )
    body = msgspec.json.encode(wanted)
    await console.documents.put(KIND, secrets.token_hex(8), body, version=0, expires=KEPT_S)
    return await _page(console, f"You asked for: {wanted.words}.")


async def decide(console: Console, asked: AskedUrl) -> ShownPage:
    """Approve or refuse one."""
    console.rights.check([(Action.GRANT, "user", "")])
    found = {name: (version, body) for name, version, body in await _all(console)}
    name, verdict = asked.names["id"], asked.text("verdict")
    if name not in found or verdict not in ("approved", "refused"):
        raise BadRequest("there is no such request any more, or the verdict is neither of both")
    version, request = found[name]
    if request.state != "open":
        raise Conflict(f"{request.by} decided it already: {WORDS[request.state]}")
    if verdict == "approved":
        await console.mq.admin.grant(request.user, request.right, request.resource)
    state: Literal["approved", "refused"] = "approved" if verdict == "approved" else "refused"
    decided = msgspec.structs.replace(request, state=state, by=console.rights.user)
    try:
        body = msgspec.json.encode(decided)
        await console.documents.put(KIND, name, body, version=version, expires=KEPT_S)
    except VersionMismatch:
        raise Conflict("somebody else decided it in this moment: look again") from None
    return await _page(console, f"{WORDS[state]}: {request.user}, {request.words}.")
