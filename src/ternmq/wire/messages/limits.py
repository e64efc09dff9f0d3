"""What may be done, and how much of it: limits of topics, applications and consumers; users and
their grants.

None leaves a value as it is; a rate of 0 takes the limit away. A password is never sent: who makes
a user works out the verifier and sends that. Lists tell how somebody proves itself, never by what.
"""

from typing import Annotated, Literal

from msgspec import Meta

from ternmq.wire.record import Number, Record

Text = Annotated[str, Meta(max_length=255)]
Bytes = Annotated[bytes, Meta(max_length=64)]


class TopicSet(Record, frozen=True):
    """Change some settings of a topic."""

    name: str
    closed: bool | None = None
    apps: list[str] | None = None
    body_size_max: Number | None = None
    rate: Number | None = None
    bytes_rate: Number | None = None
    over_limit: Literal["refuse", "dead_letter"] | None = None
    paused: bool | None = None
    consume_paused: bool | None = None
    keep_ms: Number | None = None
    broker_groups: Number | None = None
    on_groups: list[str] | None = None
    master_key: str | None = None
    key_period_ms: Number | None = None


class LimitSet(Record, frozen=True):
    """Change the limits of an application, on all topics together."""

    app: str
    rate: Number | None = None
    bytes_rate: Number | None = None
    consume_rate: Number | None = None
    consume_bytes_rate: Number | None = None


class AppLimit(Record, frozen=True):
    """What an application may send and consume a second; 0 means no limit."""

    app: str
    rate: Number = 0
    bytes_rate: Number = 0
    consume_rate: Number = 0
    consume_bytes_rate: Number = 0


class AppLimits(Record, frozen=True):
    limits: list[AppLimit]


class ConsumerPause(Record, frozen=True):
    """Hand nothing out to one consumer of a group, or let it go on."""

    topic: str
    group: str
    session: str
    """As `Member.session`; its first characters are enough where they name one consumer."""
    paused: bool = True


class Verifier(Record, frozen=True):
    """By what a password is recognised (RFC 5802): it does not tell the password."""

    salt: Bytes
    iterations: Number
    stored_key: Bytes
    server_key: Bytes


class Grant(Record, frozen=True):
    """One line: this action, on what the pattern names, is allowed or (deny) forbidden."""

    action: Text
    """One of `wire.actions.Action`, or '*'."""
    resource: Text
    """`topic:order.*`, `group:billing`, `app:shop`, `*`; a name alone is a topic."""
    deny: bool = False


class Quota(Record, frozen=True):
    """How much a user may have of each server; 0: no limit, None: what the default says (or, in a
    change, as it is)."""

    connections_max: Number | None = None
    connects_rate: Number | None = None
    """New connections a second."""
    rate: Number | None = None
    """Messages a second that it sends, and below bytes."""
    bytes_rate: Number | None = None
    consume_rate: Number | None = None
    """The same of what it is handed."""
    consume_bytes_rate: Number | None = None
    in_flight_size_max: Number | None = None
    """Bytes that were accepted and not answered."""
    waiting_max: Number | None = None
    """Requests that are not answered."""
    loop_percent: Number | None = None
    """Of the time that a server has for everybody."""
    topics_max: Number | None = None
    """That it made and that are there."""
    halves_max: Number | None = None
    """Open transactions of its applications."""
    groups_max: Number | None = None
    """Consumer groups that it made and that are there."""
    delayed_max: Number | None = None
    """Messages that it sent for later and that are not due yet."""
    keys_max: Number | None = None
    """Data keys of encrypted topics that it made and that are not erased: one for each subject."""


class UserSet(Record, frozen=True):
    """Make a user, or change what is given of one."""

    name: Text
    create: bool = False
    verifier: Verifier | None = None
    apps: list[Text] | None = None
    """Which applications it may be; none: its own name."""
    connections_max: Number | None = None
    """To each server; 0: as many as the server takes."""
    quota: Quota | None = None
    """Of a user, or of '*' for everybody who has no other."""


class UserFind(Record, frozen=True):
    """One identity or pattern; empty: all."""

    name: str = ""


class UserNamed(Record, frozen=True):
    name: Text


class User(Record, frozen=True):
    """An identity, or a pattern of identities that grants were made for."""

    name: str
    user: bool
    """A user can log in by this name; false of a pattern."""
    apps: list[str]
    grants: list[Grant]
    methods: list[str] = []
    """How it can prove itself."""
    connections_max: Number = 0
    quota: Quota = Quota()
    """What was said of it, without the default."""


class Users(Record, frozen=True):
    users: list[User]


class TokenCreate(Record, frozen=True):
    """Make a token for a user."""

    user: Text
    expires_in_ms: Number
    narrow: list[Grant] | None = None
    """Only what one of these lines allows as well."""


class AccessToken(Record, frozen=True):
    """What is known of a token, without what it is used by."""

    id: str
    user: str
    issued_at_ms: Number
    expires_at_ms: Number
    narrow: list[Grant] | None = None
    revoked: bool = False


class TokenCreated(Record, frozen=True):
    token: str
    """Who has it is the user: it is told once, and stored nowhere."""
    about: AccessToken


class TokenFind(Record, frozen=True):
    """Limits of one user; empty: of all."""

    user: str = ""


class AccessTokens(Record, frozen=True):
    tokens: list[AccessToken]


class TokenRevoke(Record, frozen=True):
    user: Text
    id: str = ""
    """Empty: all that were made until now."""


class WhoAmI(Record, frozen=True):
    """Asks by which user, and with which rights, this connection came in."""


class OwnRights(Record, frozen=True):
    """Who the connection is, and every line that counts for it."""

    user: str = ""
    """Empty: nobody logs in here, so everybody may do everything."""
    apps: list[str] = []
    grants: list[Grant] = []
    """Of the user and of the patterns that mean it."""
    token_id: str = ""
    """By which it came; empty: not by a token of ours."""
    narrow: list[Grant] | None = None
    """Of the token: only what one of these lines allows as well."""
    ends_at_ms: Number = 0
    """When the token ends; 0: there is none."""


class TokenEnd(Record, frozen=True):
    """Ends the token by which this connection came in: whoever has it may give it up."""


class AccessKeySet(Record, frozen=True):
    """Make an access key of a user, or remove one."""

    user: Text
    remove: Text = ""
    """The id of the key that goes; empty: one is made."""


class AccessKey(Record, frozen=True):
    """A name and a secret by which RocketMQ clients sign what they ask."""

    id: str
    user: str
    made_at_ms: Number
    secret: str = ""
    """Told when it is made, and to gateways."""


class AccessKeyFind(Record, frozen=True):
    """Keys of one user; empty: of all."""

    user: Text = ""


class AccessKeys(Record, frozen=True):
    keys: list[AccessKey]


class AccessKeyOpen(Record, frozen=True):
    """A question of gateways: what is needed to serve who came with this key?"""

    id: Text
    token_id: Text = ""
    """The token that it has for the user already."""


class OpenedKey(Record, frozen=True):
    """By what the gateway checks signatures, and by which it comes as the user."""

    key: AccessKey
    token: str = ""
    """Empty: the one that it has is good for a while."""
    token_id: str = ""
    ends_at_ms: Number = 0


class GrantSet(Record, frozen=True):
    """Add a line, or take one away."""

    identity: Text
    """A name, `order-*`, or `*`."""
    grant: Grant
    remove: bool = False
