"""What an identity may do: grants held against an action and a resource; pure.

A *resource* is a kind and a name: ("topic", "order.new"). A grant's pattern is `KIND:NAME`, a name
alone is a topic; a name is exact, a prefix (`order.*`) or everything (`*`), and `*` alone is
everything of every kind. An empty name is "all of them", and only a pattern that names everything
covers it. Deny wins, and one deny of some is a deny of all; nothing that allows means no. Besides
the grants: groups that are named like an application of one's own (`shop`, `shop.*`) may be
consumed in, and one's own password and tokens changed, unless one came by a token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq.core.errors import BadRequest, Forbidden
from ternmq.core.ids import check_name
from ternmq.security.access.token import TokenClaims
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import Grant

ANY: Final = "*"
KINDS = ("topic", "group", "app", "cluster", "user", "document", "access-key", "unmasked")
UNMASKED: Final = "unmasked"
"""What masks of the console hide of a topic."""
ABOUT_TOPICS = (
    Action.PUBLISH,
    Action.SUBSCRIBE,
    Action.READ,
    Action.DELAY,
    Action.OPERATE,
    Action.MANAGE,
)
"""Who may do one of these with a topic may also see that it is there."""
ACTIONS_GRANTED = (*ABOUT_TOPICS, Action.DESCRIBE, Action.CLUSTER, Action.GRANT)
LISTED_MAX = 20_000
"""Decisions that are remembered of one connection."""
LISTED_SIZE_MAX = 1024 * 1024
"""Characters of their names."""

Right = tuple[Action, str, str]
"""An action, and the kind and name of what it is done to."""


def covers(pattern: str, name: str) -> bool:
    """Is the name one of those that the pattern means?"""
    if pattern.endswith(ANY):
        return bool(name or pattern == ANY) and name.startswith(pattern[:-1])
    return bool(name) and pattern == name


def check_pattern(kind: str, pattern: str) -> str:
    """A name, a name and '*', or '*'; else says so."""
    if pattern != ANY:
        check_name(kind, pattern.removesuffix(ANY))
    return pattern


def check_grant(grant: Grant) -> Grant:
    """A grant with its resource written out; raises `BadRequest` where it means nothing."""
    if grant.action != ANY and grant.action not in ACTIONS_GRANTED:
        known = ", ".join(ACTIONS_GRANTED)
        raise BadRequest(f"there is no action {grant.action[:40]!r}; there are {known} and '*'")
    if grant.resource == ANY:
        return grant
    kind, colon, name = grant.resource.partition(":")
    if not colon:
        kind, name = "topic", grant.resource
    if kind not in KINDS:
        raise BadRequest(
            f"{grant.resource[:80]!r} is no resource: write NAME for a topic, or KIND:NAME with "
            f"one of {', '.join(KINDS)}; names may end in '*'"
        )
    check_pattern(kind, name)
    return Grant(action=grant.action, resource=f"{kind}:{name}", deny=grant.deny)


def matches(grant: Grant, right: Right) -> bool:
    action, kind, name = right
    if grant.action not in (ANY, action):
        return False
    if grant.resource == ANY:
        return True
    of_kind, _, pattern = grant.resource.partition(":")
    kind = "user" if kind == "password" else kind
    if grant.deny and not name:  # All of them are also those that are denied.
        return of_kind == kind
    return of_kind == kind and covers(pattern, name)


@dataclass(slots=True)
class Rights:
    """Rights of one identity, as long as its grants are what they are."""

    name: str
    apps: Sequence[str]
    grants: Sequence[Grant] = ()
    token: TokenClaims | None = None
    """By which it came in; None: by a proof that stays with it."""
    _known: dict[Right, bool] = field(default_factory=dict)
    _known_size: int = 0

    def is_app(self, app: str) -> bool:
        """May it call itself so?"""
        return any(covers(pattern, app) for pattern in self.apps)

    def may(self, action: Action, kind: str, name: str) -> bool:
        right = (action, kind, name)
        known = self._known.get(right)
        if known is None:
            known = self._decide(right)
            self._keep(right, known)
        return known

    def _keep(self, right: Right, known: bool) -> None:
        self._known_size += len(right[2])
        if len(self._known) >= LISTED_MAX or self._known_size > LISTED_SIZE_MAX:
            self._known.clear()
            self._known_size = len(right[2])
        self._known[right] = known

    def denied(self, action: Action, kind: str, name: str) -> bool:
        """Is there a line that refuses it, whatever others allow?"""
        return self._denied_by((action, kind, name)) is not None

    def _denied_by(self, right: Right) -> Grant | None:
        return next((each for each in self.grants if each.deny and matches(each, right)), None)

    def _decide(self, right: Right) -> bool:
        return self._granted(right) and self._within_token(right)

    def _within_token(self, right: Right) -> bool:
        """A token may be narrower than its user; with it come the user's own groups, and that one
        sees what one may use."""
        narrow = None if self.token is None else self.token.narrow
        if narrow is None or any(matches(line, right) for line in narrow):
            return True
        action, kind, name = right
        if action is Action.DESCRIBE and kind in ("topic", "group"):
            return any(
                matches(line, (each, kind, name)) for each in ABOUT_TOPICS for line in narrow
            )
        subscribes = any(line.action in (ANY, Action.SUBSCRIBE) for line in narrow)
        return kind == "group" and subscribes and self._is_own(right)

    def _granted(self, right: Right) -> bool:
        action, kind, name = right
        if self._denied_by(right) is not None:
            return False
        allowed = self._is_own(right) or any(
            not grant.deny and matches(grant, right) for grant in self.grants
        )
        if action is Action.DESCRIBE and not allowed and kind in ("topic", "group"):
            return any(self._granted((each, kind, name)) for each in ABOUT_TOPICS)
        return allowed

    def _is_own(self, right: Right) -> bool:
        action, kind, name = right
        if kind == "password":
            # By a token that was stolen nobody stays longer than it lasts.
            return name == self.name and self.token is None
        if kind == "group" and action is Action.SUBSCRIBE:
            return any(
                ANY not in app and (name == app or name.startswith(f"{app}.")) for app in self.apps
            )
        return False

    def check(self, action: Action, kind: str, name: str) -> None:
        """Raises `Forbidden`, which says what is missing and how it is given."""
        if not self.may(action, kind, name):
            raise missing(
                self.name, action, kind, name, denied_by=self._denied_by((action, kind, name))
            )

    def check_operate(self, topic: str) -> None:
        """What belongs to others on this topic; an empty name: on all of them."""
        self.check(Action.OPERATE, "topic", topic)

    def sees(self, topic: str) -> bool:
        """Is a topic shown to it? Hidden ones are not."""
        return self.may(Action.DESCRIBE, "topic", topic)

    def check_sends_or_reads(self, topic: str) -> None:
        """May it know where messages of a topic are?"""
        if not self.may(Action.READ, "topic", topic):
            self.check(Action.PUBLISH, "topic", topic)

    @property
    def may_grant(self) -> bool:
        """Can it set right what others have wrong?"""
        return self.may(Action.GRANT, "user", "")

    @property
    def sees_all(self) -> bool:
        """Nothing has to be left out of lists."""
        denied = any(grant.deny and grant.action in (ANY, Action.DESCRIBE) for grant in self.grants)
        return not denied and all(
            self.may(Action.DESCRIBE, kind, "") for kind in ("topic", "group", "app")
        )


def missing(
    identity: str, action: Action, kind: str, name: str, *, denied_by: Grant | None = None
) -> Forbidden:
    """Which right is missing, and who asks for it can be told how it is given."""
    if kind == "password":
        action, kind = Action.GRANT, "user"
    what = f"{kind} {name!r}" if name else f"all {kind}s"
    resource = f"{kind}:{name}" if name and kind != "topic" else name or f"{kind}:{ANY}"
    if denied_by is None:
        help_ = (
            f"whoever may grant gives the right by: tern grant add {identity} {action} '{resource}'"
        )
    elif name:
        help_ = f"a line denies {denied_by.action} {denied_by.resource}"
    else:
        help_ = f"a line denies {denied_by.action} {denied_by.resource}: ask for one {kind} by name"
    return Forbidden(
        f"{identity!r} may not {action} on {what}; {help_}",
        action=str(action),
        resource=resource,
        identity=identity,
    )


def lost(before: Iterable[Right], now: Rights) -> Right | None:
    """One of the rights that is not there any more."""
    return next((right for right in before if not now.may(*right)), None)
