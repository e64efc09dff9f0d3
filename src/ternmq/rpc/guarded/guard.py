"""What one server with security on asks of its peers: logins, rights, and the log of both.

One guard per listener. It decides with what the server knows in memory (`AccessBook`), which other
parts keep fresh. A peer's rights are an object that is replaced when the book changes; a user that
is gone, and a peer that waits for what it may not have any more, are closed at once. What a batch
needs is looked up once per topic and application, then it is one look into a set (`known`). Servers
of the cluster have no rights and need none: `rpc/node_proof.py` let them in.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ternmq.batch.layout import DIRECTORY_ENTRY_SIZE, FIXED_SIZE, Column
from ternmq.core.errors import (
    BadRequest,
    Forbidden,
    OverLimit,
    ProtocolError,
    TernError,
    Unauthorized,
)
from ternmq.core.units import align8
from ternmq.rpc.address import join_address
from ternmq.rpc.guarded.failed_logins import FailedLogins
from ternmq.rpc.peer import Peer
from ternmq.security.access import scram
from ternmq.security.access.access_book import AccessBook
from ternmq.security.access.audit import AuditLog
from ternmq.security.access.quota import UserUse
from ternmq.security.access.rights import Right, Rights, lost
from ternmq.security.access.token import TokenClaims
from ternmq.wire.actions import ACTIONS, ALSO_BY, Action
from ternmq.wire.frame import Frame
from ternmq.wire.messages.limits import Verifier
from ternmq.wire.numbers import Command
from ternmq.wire.resources import RESOURCES, Resource, batch_names

STALE_S = 24 * 3600.0
"""So long a server goes on with what it knew while no registry answers."""
KNOWN_MAX = 10_000
USES_MAX = 10_000
"""Users that are counted for, beyond those who are connected."""
NAME_SIZE_MAX = 255
"""Also of topics of ours, which have a name within theirs."""

_BATCHES = frozenset(map(int, (Command.PUBLISH, Command.PUBLISH_ONCE, Command.HALF)))
_FREE = frozenset(map(int, (Command.PULL, Command.ACK, Command.RENEW, Command.LEAVE)))
_MAKES_TOPICS = frozenset(map(int, (*_BATCHES, Command.JOIN, Command.GROUP_CREATE)))
_WAITED_FOR = (Action.SUBSCRIBE, Action.READ)
_WRITTEN_DOWN = (Action.OPERATE, Action.MANAGE, Action.CLUSTER, Action.GRANT)
_NOT_WRITTEN = (Command.ACCESS_KEY_OPEN,)
"""Asked by gateways every second; that its user came in is written down."""
_TOPIC_SIZE_AT, _APP_SIZE_AT, _BUFFERS_AT = 200, 201, 202
_ORIGIN_APP, _ORIGIN_ADDRESS = int(Column.ORIGIN_APP), int(Column.ORIGIN_ADDRESS)


class TopicFacts(Protocol):
    """What is asked about topics."""

    def exists(self, topic: str) -> bool: ...

    def owners(self, hidden: str, action: Action) -> list[Right] | None:
        """By which rights a topic of our own is reached for this; None: by none."""

    def letter_owners(self, group: str) -> list[Right]:
        """By which rights the dead letters of a group are."""

    def silent_s(self) -> float:
        """For how long no registry was heard."""


class Issuer(Protocol):
    """An issuer outside whose tokens are taken; `discovery.oidc_keys.OidcKeys`."""

    def is_of(self, text: str) -> bool: ...

    def claims(self, text: str, now_ms: int) -> TokenClaims: ...


class GuardedState(Protocol):
    """A peer as the guard knows it."""

    rights: Rights | None
    known: set[object]
    used: set[Right]
    asked: int


class Guard:
    """The guard of one listener."""

    def __init__(
        self,
        book: AccessBook,
        topics: TopicFacts,
        *,
        audit: AuditLog,
        secret: bytes,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        issuer: Issuer | None = None,
    ) -> None:
        """`issuer`: whose tokens are taken besides our own."""
        self.book = book
        self.audit = audit
        self.now_ms = now_ms
        self._issuer = issuer
        self._topics = topics
        self._secret = secret
        self.failed_logins = FailedLogins(monotonic)
        self._peers: dict[Peer, None] = {}
        self._uses: dict[str, UserUse] = {}
        self._monotonic = monotonic
        book.follow(self._recheck)

    # Coming and going.

    @property
    def stale(self) -> bool:
        """What is known is too old to be trusted."""
        return self._topics.silent_s() > STALE_S

    def verifier(self, user: str) -> Verifier:
        """Of a user, or one that nobody can prove, in the same time."""
        nobody = scram.nobody(self.book.token_keys.alike.encode() or self._secret, user)
        entry = self.book.user(user)
        return entry.verifier if entry is not None and entry.verifier is not None else nobody

    def token_claims(self, text: str) -> TokenClaims:
        """Whom a token names, of ours or of the issuer; raises `Unauthorized`."""
        issuer = self._issuer
        if issuer is None or not issuer.is_of(text):
            return self.book.token_claims(text, self.now_ms())
        claims = issuer.claims(text, self.now_ms())
        self.book.check_claims(claims)
        return claims

    def check_failures(self, host: str, user: str) -> None:
        """Raises `OverLimit` for who has failed too often, and writes down that it tries on."""
        try:
            self.failed_logins.check(host, user)
        except OverLimit:
            self.audit.note_summed("login", who="", address=host, result="over_limit", user=user)
            raise

    def admit(self, peer: Peer) -> None:
        """One more connection of its user; raises `OverLimit`."""
        rights = peer.rights
        if rights is None:
            return
        use = self.use_of(rights.name)
        use.connect(reserved=rights.may_grant)
        peer.use = use
        self._peers[peer] = None
        self.audit.note("login", who=rights.name, address=address_of(peer), result="ok")

    def leave(self, peer: Peer) -> None:
        if peer in self._peers and peer.rights is not None:
            del self._peers[peer]
            assert peer.use is not None
            peer.use.connections -= 1

    def use_of(self, name: str) -> UserUse:
        """Kept when the last connection ends: who comes back has not waited."""
        use = self._uses.get(name)
        if use is None:
            if len(self._uses) >= USES_MAX:
                self._uses = {name: each for name, each in self._uses.items() if each.connections}
            use = self._uses[name] = UserUse(name, self.book.quota(name), self._monotonic)
        return use

    def _recheck(self) -> None:
        """The book changed: nobody keeps what was taken away."""
        for name, use in self._uses.items():
            use.change(self.book.quota(name))
        for peer in list(self._peers):
            before = peer.rights
            assert before is not None
            now = self.book.rights(before.name, before.token)
            if now is None and self.book.user(before.name) is not None:
                self._send_away(peer, Unauthorized("the token of this connection was revoked"))
            elif now is None:
                self._send_away(peer, Unauthorized(f"there is no user {before.name!r} any more"))
            elif peer.hello is not None and not now.is_app(peer.hello.app):
                self._send_away(peer, not_app(now, peer.hello.app))
            elif (gone := lost(state_of(peer).used, now)) is not None:
                self._send_away(peer, Forbidden(f"{before.name!r} may not {gone[0]} any more"))
            else:
                peer.rights = now
                state_of(peer).known.clear()

    def _send_away(self, peer: Peer, reason: TernError) -> None:
        assert peer.rights is not None
        self.audit.note(
            "sent away", who=peer.rights.name, address=address_of(peer), result=reason.message
        )
        peer.close(reason)

    def topic_gone(self) -> None:
        """Whoever sends to it next makes it anew, and needs the right to."""
        for peer in self._peers:
            state_of(peer).known.clear()

    # What may be done.

    def check(self, peer: Peer, frame: Frame) -> None:
        """Raises `Forbidden` where the peer may not ask this."""
        rights, command = peer.rights, frame.command
        if rights is None or command in _FREE:
            return
        try:
            if command in _BATCHES:
                self._check_batch(peer, rights, frame)
            else:
                self._check_request(peer, rights, frame)
        except Forbidden as error:
            self.audit.note_summed(
                "refused",
                who=rights.name,
                address=address_of(peer),
                result="forbidden",
                command=Command(command).name,
                **error.details,
            )
            raise

    def _check_batch(self, peer: Peer, rights: Rights, frame: Frame) -> None:
        batch = frame.payload
        if len(batch) < FIXED_SIZE:
            raise ProtocolError(f"{len(batch)} bytes cannot be a batch")
        end = FIXED_SIZE + batch[_TOPIC_SIZE_AT] + batch[_APP_SIZE_AT]
        columns_at = align8(end)
        count = batch[_BUFFERS_AT] | batch[_BUFFERS_AT + 1] << 8
        columns_end = columns_at + DIRECTORY_ENTRY_SIZE * count
        # The low byte of every column's number: has it senders of its own?
        columns = batch[columns_at:columns_end:DIRECTORY_ENTRY_SIZE]
        signed = _ORIGIN_APP in columns or _ORIGIN_ADDRESS in columns
        key = (batch[_TOPIC_SIZE_AT], signed, bytes(batch[FIXED_SIZE:end]))
        known = state_of(peer).known
        if key in known:
            return
        topic, app, _ = batch_names(batch)
        if not rights.is_app(app):
            raise not_app(rights, app)
        self._need(peer, rights, Action.PUBLISH, "topic", topic)
        if signed:  # Says of its messages that others sent them.
            self._need(peer, rights, Action.OPERATE, "topic", topic)
        if not self._topics.exists(topic):
            rights.check(Action.MANAGE, "topic", topic)
            return
        if len(known) >= KNOWN_MAX:
            known.clear()
        known.add(key)

    def _check_request(self, peer: Peer, rights: Rights, frame: Frame) -> None:
        try:
            command = Command(frame.command)
        except ValueError:
            return  # Nobody answers it.
        action, found = ACTIONS[command], RESOURCES[command](frame.payload)
        _check_sizes(found)
        action = _by_which(rights, action, ALSO_BY.get(command), found)
        for kind, name in found:
            self._need(peer, rights, action, kind, name)
            if command in _MAKES_TOPICS and kind == "topic" and not self._topics.exists(name):
                rights.check(Action.MANAGE, kind, name)
        if action in _WRITTEN_DOWN and command not in _NOT_WRITTEN:
            self.audit.note(
                str(action),
                who=rights.name,
                address=address_of(peer),
                result="allowed",
                command=command.name,
                about=[f"{kind}:{name or '*'}" for kind, name in found],
            )

    def _need(self, peer: Peer, rights: Rights, action: Action, kind: str, name: str) -> None:
        needed: Iterable[Right] = [(action, kind, name)]
        if kind == "letters":
            needed = self._topics.letter_owners(name)
        elif kind == "topic" and name.startswith("%"):
            owners = self._topics.owners(name, action)
            if owners is None:
                raise Forbidden(f"{name!r} belongs to the servers")
            needed = owners
        used = state_of(peer).used
        for right in needed:
            rights.check(*right)
            if action in _WAITED_FOR and right not in used:
                if len(used) >= KNOWN_MAX:
                    raise OverLimit(
                        f"{KNOWN_MAX} topics were asked for on this connection; open another"
                    )
                used.add(right)


def _check_sizes(found: list[Resource]) -> None:
    """Before a name is looked up, kept or said again."""
    for kind, name in found:
        if len(name) > NAME_SIZE_MAX:
            raise BadRequest(
                f"no {kind} has a name of {len(name)} characters, {NAME_SIZE_MAX} is the most"
            )


def _by_which(rights: Rights, action: Action, also: Action | None, found: list[Resource]) -> Action:
    """The action of the command, or the other one that will do. What is denied is not allowed by
    another name; and topics of ours have owners, who are asked for the command's own."""
    if also is None or any(kind == "topic" and name.startswith("%") for kind, name in found):
        return action
    if _all(rights, action, found) or any(rights.denied(action, *each) for each in found):
        return action
    return also if _all(rights, also, found) else action


def _all(rights: Rights, action: Action, found: list[Resource]) -> bool:
    return all(rights.may(action, *resource) for resource in found)


def state_of(peer: Peer) -> GuardedState:
    """What the guard keeps with the peer itself."""
    assert hasattr(peer, "known"), "a peer of a listener without a guard"
    return peer  # type: ignore[return-value]


def not_app(rights: Rights, app: str) -> Forbidden:
    may_be = ", ".join(rights.apps)
    return Forbidden(
        f"{rights.name!r} cannot be the application {app[:80]!r}, only {may_be}; to change that: "
        f"tern user apps {rights.name} …",
        identity=rights.name,
        app=app[:80],
    )


def address_of(peer: Peer) -> str:
    return join_address(*peer.address)
