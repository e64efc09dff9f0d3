"""Users, grants and tokens, asked of meta servers. Of a password only a verifier is sent."""

import asyncio
import secrets

from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.durations import Duration, seconds_of
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.core.errors import BadRequest, IdentityNotFound
from ternmq.core.ids import check_name
from ternmq.security.access.quota import check_quota
from ternmq.security.access.rights import check_grant, check_pattern
from ternmq.security.access.scram import ITERATIONS, SALT_SIZE, make_verifier
from ternmq.security.access.secret import Secret
from ternmq.wire.messages.limits import (
    AccessKey,
    AccessKeyFind,
    AccessKeyOpen,
    AccessKeys,
    AccessKeySet,
    AccessToken,
    AccessTokens,
    Grant,
    GrantSet,
    OpenedKey,
    OwnRights,
    TokenCreate,
    TokenCreated,
    TokenEnd,
    TokenFind,
    TokenRevoke,
    User,
    UserFind,
    UserNamed,
    Users,
    UserSet,
    Verifier,
    WhoAmI,
)
from ternmq.wire.numbers import Command

TOKEN_S_MAX = 366 * 24 * 3600.0


@typed_calls
class AccessAdmin(AdminCalls):
    """Calls about users and what they may do."""

    async def add_user(
        self,
        name: str,
        password: str | Secret | None = None,
        apps: list[str] | None = None,
        iterations: int = ITERATIONS,
    ) -> User:
        """Make a user, who may be these applications (its own name) and has no rights yet. Without
        a password it comes in by a certificate of its name."""
        check_name("user", name)
        verifier = None if password is None else await _verifier(password, iterations)
        wanted = UserSet(name=name, create=True, verifier=verifier, apps=apps or [])
        return await self._cluster.ask_meta(Command.USER_SET, wanted, User)

    async def set_password(
        self, name: str, password: str | Secret, iterations: int = ITERATIONS
    ) -> User:
        """Another password from the next login on; one's own may be changed without a right."""
        wanted = UserSet(name=name, verifier=await _verifier(password, iterations))
        return await self._cluster.ask_meta(Command.USER_SET, wanted, User)

    async def set_user(
        self, name: str, apps: list[str] | None = None, connections_max: int | None = None
    ) -> User:
        """Change which applications a user may be, or how often it may connect to a server."""
        wanted = UserSet(name=name, apps=apps, connections_max=connections_max)
        return await self._cluster.ask_meta(Command.USER_SET, wanted, User)

    async def set_quota(self, name: str, quota: dict[str, int]) -> User:
        """Change how much a user may have of each server, or `*`: everybody who has no other:
        `{"rate": 5000, "loop_percent": 20}`; 0 is no limit, -1 what everybody has. The names are
        the fields of `Quota`, in docs/access.md."""
        wanted = UserSet(name=name, quota=check_quota(quota))
        return await self._cluster.ask_meta(Command.USER_SET, wanted, User)

    async def users(self) -> list[User]:
        """Every user, and every pattern that grants were made for, by name."""
        return (await self._cluster.ask_meta(Command.USER_LIST, UserFind(), Users)).users

    async def user(self, name: str) -> User:
        """One of them; `IdentityNotFound` if there is none of that name."""
        found = await self._cluster.ask_meta(Command.USER_LIST, UserFind(name=name), Users)
        for user in found.users:
            return user
        raise IdentityNotFound(f"there is no user {name!r}; 'tern user list' shows them")

    async def remove_user(self, name: str) -> None:
        """Remove a user: its connections end within a second, its grants go with it."""
        await self._cluster.ask_meta(Command.USER_REMOVE, UserNamed(name=name), User)

    async def grant(
        self, identity: str, action: str, resource: str = "*", deny: bool = False
    ) -> User:
        """Allow (or deny) an action on a resource: `order.*` (topics), `group:billing`, `*`."""
        return await self._set_grant(identity, action, resource, deny=deny, remove=False)

    async def revoke(
        self, identity: str, action: str, resource: str = "*", deny: bool = False
    ) -> User:
        """Take such a line away again."""
        return await self._set_grant(identity, action, resource, deny=deny, remove=True)

    async def create_token(
        self,
        user: str,
        expires: Duration = 3600.0,
        narrow: list[tuple[str, str]] | None = None,
    ) -> TokenCreated:
        """A token whose holder is this user for so long; for (action, resource) lines only, if it
        is narrowed. One's own may be made without a right, except by a token."""
        check_name("user", user)
        expires_s = seconds_of("expires", expires, 1.0, TOKEN_S_MAX)
        lines = None
        if narrow is not None:
            lines = [check_grant(Grant(action=line[0], resource=line[1])) for line in narrow]
        wanted = TokenCreate(user=user, expires_in_ms=int(expires_s * 1000), narrow=lines)
        return await self._cluster.ask_meta(Command.TOKEN_CREATE, wanted, TokenCreated)

    async def tokens(self, user: str = "") -> list[AccessToken]:
        """The tokens that have not ended, of one user or of all."""
        found = await self._cluster.ask_meta(Command.TOKEN_LIST, TokenFind(user=user), AccessTokens)
        return found.tokens

    async def revoke_tokens(self, user: str, token_id: str = "") -> list[AccessToken]:
        """One, or all that were made until now; their connections end within a second."""
        wanted = TokenRevoke(user=user, id=token_id)
        return (await self._cluster.ask_meta(Command.TOKEN_REVOKE, wanted, AccessTokens)).tokens

    async def whoami(self) -> OwnRights:
        """By which user this client came in, and every line that counts for it; an empty user where
        nobody has to log in."""
        return await self._cluster.ask_meta(Command.WHO_AM_I, WhoAmI(), OwnRights)

    async def end_token(self) -> None:
        """Give up the token by which this client came in: it is good for nothing afterwards, and
        its connections end within a second."""
        await self._cluster.ask_meta(Command.TOKEN_END, TokenEnd(), AccessTokens)

    async def create_access_key(self, user: str) -> AccessKey:
        """A name and a secret by which RocketMQ clients come as this user, through a gateway. The
        secret is told now, and never again."""
        check_name("user", user)
        return (await self._set_access_key(AccessKeySet(user=user)))[0]

    async def access_keys(self, user: str = "") -> list[AccessKey]:
        """Access keys of one user or of all, without their secrets."""
        wanted = AccessKeyFind(user=user)
        return (await self._cluster.ask_meta(Command.ACCESS_KEY_LIST, wanted, AccessKeys)).keys

    async def remove_access_key(self, user: str, key_id: str) -> list[AccessKey]:
        """Nobody comes by it any more within a second; those that are left."""
        check_name("user", user)
        if not key_id:
            raise BadRequest("which access key? 'tern access-key list' shows them")
        return await self._set_access_key(AccessKeySet(user=user, remove=key_id))

    async def open_access_key(self, key_id: str, token_id: str = "") -> OpenedKey:
        """What a gateway needs of a key: needs the right to grant `access-key:ID`. `token_id`: the
        token that the caller has for its user already."""
        wanted = AccessKeyOpen(id=key_id, token_id=token_id)
        return await self._cluster.ask_meta(Command.ACCESS_KEY_OPEN, wanted, OpenedKey)

    async def _set_access_key(self, wanted: AccessKeySet) -> list[AccessKey]:
        return (await self._cluster.ask_meta(Command.ACCESS_KEY_SET, wanted, AccessKeys)).keys

    async def _set_grant(
        self, identity: str, action: str, resource: str, *, deny: bool, remove: bool
    ) -> User:
        check_pattern("user", identity)
        line = check_grant(Grant(action=action, resource=resource, deny=deny))
        wanted = GrantSet(identity=identity, grant=line, remove=remove)
        return await self._cluster.ask_meta(Command.GRANT_SET, wanted, User)


async def _verifier(password: str | Secret, iterations: int) -> Verifier:
    """By a thread: it takes a while on purpose."""
    text = password.reveal() if isinstance(password, Secret) else password
    salt = secrets.token_bytes(SALT_SIZE)
    return await asyncio.to_thread(make_verifier, text, salt, iterations=iterations)
