"""Roles: words for people, each a handful of grants over a pattern of topics; pure.

A role is not stored: giving one adds its lines (`tern grant list` shows them), and they are taken
away one by one. What counts are the lines, here as on the servers.
"""

from typing import Final

from ternmq.core.errors import BadRequest
from ternmq.security.access.rights import ANY, check_grant
from ternmq.wire.messages.limits import Grant

VIEWER, READER, OPERATOR, OWNER, ADMIN = "viewer", "reader", "operator", "owner", "admin"
ROLES: Final = {
    VIEWER: "names and figures, no bodies",
    READER: "and bodies",
    OPERATOR: "and pause, reset, send again, cancel",
    OWNER: "and send, change and delete topics",
    ADMIN: "everything everywhere, also users and servers",
}
"""Each may what the ones before it may."""
_ADDED = {
    VIEWER: ("describe",),
    READER: ("read",),
    OPERATOR: ("operate", "delay"),
    OWNER: ("publish", "manage"),
}


def lines_of(role: str, topics: str, groups: str = ANY) -> list[Grant]:
    """What a role is: over topics of a pattern, and from operator on over groups of one."""
    if role not in ROLES:
        raise BadRequest(f"there is no role {role[:40]!r}; there are {', '.join(ROLES)}")
    if role == ADMIN:
        return [Grant(action=ANY, resource=ANY)]
    lines: list[Grant] = []
    for each, actions in _ADDED.items():
        lines += [Grant(action=action, resource=f"topic:{topics}") for action in actions]
        if each == OPERATOR:
            lines.append(Grant(action="operate", resource=f"group:{groups}"))
        if each == role:
            break
    return [check_grant(line) for line in lines]
