"""What whoever asks may do, as pages and calls ask it; by the lines that servers decide with.

The cluster tells a connection its lines (WHO_AM_I); here the same `Rights` are made of them that a
server has, so a button is shown where the order will be taken, and nowhere else. Servers decide
again when something is asked: this never lets anybody do anything. Without logins everything may be
done. Lines change while somebody looks: `learn` puts the new ones in place. Pure.
"""

from collections.abc import Iterable

from ternmq.core.errors import Forbidden
from ternmq.security.access.rights import ANY, UNMASKED, Right, Rights, missing
from ternmq.security.access.token import TokenClaims
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import OwnRights

NOT_SAID = ""


class CallerRights:
    """Rights of one caller, as they are now."""

    def __init__(self, own: OwnRights | None = None) -> None:
        """Without lines: nobody logs in here, so everybody may do everything."""
        self._own: OwnRights | None = None
        self._rights: Rights | None = None
        self.version = 0
        """Rises when the lines change."""
        self.learn(own)

    def learn(self, own: OwnRights | None) -> None:
        if own == self._own:
            return
        self._own = own
        self._rights = None if own is None or not own.user else rights_of(own)
        self.version += 1

    @property
    def user(self) -> str:
        """Empty: nobody logs in here."""
        return "" if self._rights is None else self._rights.name

    @property
    def lines(self) -> OwnRights | None:
        """As the cluster told them."""
        return self._own

    def may(self, action: Action, kind: str, name: str) -> bool:
        return self._rights is None or self._rights.may(action, kind, name)

    def may_all(self, needed: Iterable[Right], also: Action | None = None) -> bool:
        """Every one of them; or, as servers do it for some commands, all by another action."""
        wanted = list(needed)
        if self._rights is None or all(self._rights.may(*right) for right in wanted):
            return True
        if also is None or any(self._rights.denied(*right) for right in wanted):
            return False
        return all(self._rights.may(also, kind, name) for _, kind, name in wanted)

    def why_not(self, needed: Iterable[Right], also: Action | None = None) -> str:
        """A sentence for who may not; empty for who may."""
        wanted = list(needed)
        if self.may_all(wanted, also):
            return ""
        assert self._rights is not None
        lacking = next(right for right in wanted if not self._rights.may(*right))
        return refusal(lacking)

    def check(self, needed: Iterable[Right], also: Action | None = None) -> None:
        """Raises `Forbidden`, which says what is missing."""
        wanted = list(needed)
        if not self.may_all(wanted, also):
            lacking = next(right for right in wanted if not self.may(*right))
            raise missing(self.user, *lacking)

    def is_app(self, app: str) -> bool:
        return self._rights is None or self._rights.is_app(app)

    # What pages ask.

    def sees(self, topic: str) -> bool:
        return self.may(Action.DESCRIBE, "topic", topic)

    @property
    def sees_all(self) -> bool:
        return self._rights is None or self._rights.sees_all

    def reads(self, topic: str = "") -> bool:
        """Bodies; an empty name: of all topics."""
        return self.may(Action.READ, "topic", topic)

    def unmasks(self, topic: str) -> bool:
        """May see what masks hide of its messages."""
        return self.may(Action.READ, UNMASKED, topic)

    def why_not_read(self, topic: str) -> str:
        return self.why_not([(Action.READ, "topic", topic)])

    def why_not_publish(self, topic: str) -> str:
        return self.why_not([(Action.PUBLISH, "topic", topic)])

    def delays(self, topic: str = "") -> bool:
        return self.may(Action.DELAY, "topic", topic)

    def operates(self, topic: str, group: str) -> bool:
        return self.may_all([(Action.OPERATE, "topic", topic), (Action.OPERATE, "group", group)])

    def opens_letters(self, group: str, topics: Iterable[str] = ()) -> bool:
        """Dead letters of a group that has some from these topics."""
        of_topics = [(Action.OPERATE, "topic", topic) for topic in topics]
        return self.may_all([(Action.OPERATE, "group", group), *of_topics])

    def opens_refused(self, topic: str) -> bool:
        return self.may(Action.OPERATE, "topic", topic)

    def ends(self, app: str, topics: Iterable[str]) -> bool:
        """A transaction: one's own, or with the right to operate on all its topics."""
        return self.is_app(app) or self.may_all((Action.OPERATE, "topic", each) for each in topics)

    @property
    def runs_cluster(self) -> bool:
        return self.may(Action.CLUSTER, "cluster", "")

    @property
    def grants(self) -> bool:
        """May say what others may."""
        return self.may(Action.GRANT, "user", "")

    def has_line(self, action: Action) -> bool:
        """Is there anything at all that it may do by this action?"""
        if self._rights is None:
            return True
        return any(not line.deny and line.action in (ANY, action) for line in self._rights.grants)


def rights_of(own: OwnRights) -> Rights:
    """As a server has them of that connection."""
    token = None
    if own.ends_at_ms or own.narrow is not None:
        token = TokenClaims(
            iss=NOT_SAID,
            sub=own.user,
            aud=NOT_SAID,
            jti=own.token_id,
            iat=0.0,
            exp=own.ends_at_ms / 1000,
            narrow=own.narrow,
        )
    return Rights(own.user, own.apps, tuple(own.grants), token)


def refusal(right: Right) -> str:
    """Which right is missing, in words for a button."""
    action, kind, name = right
    return f"You need the right to {action} on {f'{kind} {name}' if name else f'all {kind}s'}"


def forbidden(user: str, right: Right) -> Forbidden:
    return missing(user, *right)


EVERYTHING = CallerRights()
"""Of everybody, where nobody logs in."""
