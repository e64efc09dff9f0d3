"""A login by an issuer outside (OpenID Connect): code flow with PKCE.

The browser is sent to the issuer with a random state, nonce and the digest of a verifier, which are
kept under an id that only this browser has (a cookie for ten minutes); it comes back with a code,
which is exchanged for an id token with the verifier. The token then is the session's: the cluster
checks its signature, issuer, audience, times and user, as of every token of that issuer (decision
0028), and here its nonce is held against the one that was sent. Where the issuer gives a refresh
token, the next id token is asked for before the first one ends.

Where things are is read from the issuer's own document, once in an hour; every address in it has to
be https, or http on this machine. Nothing is followed elsewhere, nothing larger than `SIZE_MAX` is
read. Blocks in threads only.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from ternmq.api.callers import claims_in, user_in
from ternmq.console.login.sessions import LoggedIn
from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, Unauthorized, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.settings import about, check
from ternmq.security.access.secret import Secret

PENDING_MAX = 1_000
PENDING_S = 600.0
DOCUMENT_S = 3_600.0
TIMEOUT_S = 10.0
SIZE_MAX = 1024 * 1024
AHEAD_S = 60.0
"""So long before its end a token is replaced."""
NOT_STARTED = "This login was not begun in this browser, or too long ago: begin again."
SAFE = ("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcClientConfig:
    """Who we are to the issuer."""

    issuer: Annotated[str, about("who logs people in: https://…")]
    client_id: Annotated[str, about("by which the issuer knows this console")]
    client_secret: Secret | None = None
    user_claim: Annotated[str, about("the claim that is the name of the user")] = "sub"
    scope: Annotated[str, about("what the issuer is asked for")] = "openid"

    def __post_init__(self) -> None:
        check(self)
        if not self.client_id:
            raise BadConfig("an issuer needs the id by which it knows this console: oidc_client_id")
        if not self.issuer.startswith(SAFE):
            raise BadConfig("the issuer is https://…: who can change it can be everybody")


@dataclass(slots=True, kw_only=True)
class PendingLogin:
    """One browser that was sent to the issuer."""

    state: str
    nonce: str
    verifier: str
    back: str
    began_at: float


class OidcLogin:
    """Logs people in by one issuer."""

    def __init__(self, config: OidcClientConfig, clock: Clock, *, redirect: str) -> None:
        """`redirect`: where browsers come back to, as the issuer knows it."""
        self._config = config
        self._clock = clock
        self._redirect = redirect
        self._pending: dict[str, PendingLogin] = {}
        self._places: dict[str, str] = {}
        self._places_at = float("-inf")

    async def begin(self, back: str) -> tuple[str, str]:
        """An id for the browser, and where to send it."""
        places = await self._find_places()
        self._forget_old()
        pending = PendingLogin(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(64),
            back=back,
            began_at=self._clock.monotonic(),
        )
        id = secrets.token_urlsafe(32)
        self._pending[id] = pending
        query = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._redirect,
            "scope": self._config.scope,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge_of(pending.verifier),
            "code_challenge_method": "S256",
        }
        place = places["authorization_endpoint"]
        return id, f"{place}{'&' if '?' in place else '?'}{urllib.parse.urlencode(query)}"

    async def finish(self, id: str, query: dict[str, str]) -> tuple[LoggedIn, str]:
        """Of the browser that came back: who it is, and where it wanted to go."""
        pending = self._pending.pop(id, None)
        if pending is None or self._clock.monotonic() - pending.began_at > PENDING_S:
            raise Unauthorized(NOT_STARTED)
        if not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise Unauthorized(NOT_STARTED)
        if query.get("iss", self._config.issuer) != self._config.issuer:
            raise Unauthorized("another issuer answered than the one that was asked")
        code = query.get("code", "")
        if not code:
            why = query.get("error_description") or query.get("error") or "it gave no code"
            raise Unauthorized(f"the issuer did not log you in: {why[:200]}")
        answer = await self._tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._redirect,
                "code_verifier": pending.verifier,
            }
        )
        login = self._login(answer)
        nonce = claims_in(login.token.reveal()).get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode(), pending.nonce.encode()
        ):
            raise Unauthorized("the token of the issuer is not for this login")
        return login, pending.back

    def needs_renewal(self, login: LoggedIn) -> bool:
        soon = self._clock.monotonic() > login.ends_at - AHEAD_S
        return login.refresh is not None and soon

    async def renew(self, login: LoggedIn) -> LoggedIn:
        """With the next token; raises `Unauthorized` where the issuer gives none."""
        assert login.refresh is not None
        answer = await self._tokens(
            {"grant_type": "refresh_token", "refresh_token": login.refresh.reveal()}
        )
        renewed = self._login(answer)
        if renewed.user != login.user:
            raise Unauthorized("the issuer gave the token of somebody else")
        return replace(renewed, refresh=renewed.refresh or login.refresh)

    def _login(self, answer: dict[str, Any]) -> LoggedIn:
        token, refresh = answer.get("id_token"), answer.get("refresh_token")
        if not isinstance(token, str):
            raise Unauthorized("the issuer gave no id token: its client needs the scope openid")
        claims = claims_in(token)
        ends = claims.get("exp")
        if not isinstance(ends, int | float) or isinstance(ends, bool):
            raise Unauthorized("the token of the issuer has no end")
        left_s = float(ends) - self._clock.now_ms() / 1000
        return LoggedIn(
            user=user_in(token, self._config.user_claim),
            token=Secret(token),
            ends_at=self._clock.monotonic() + left_s,
            refresh=Secret(refresh) if isinstance(refresh, str) and refresh else None,
            ours=False,
        )

    async def _tokens(self, fields: dict[str, str]) -> dict[str, Any]:
        config = self._config
        places = await self._find_places()
        headers = {}
        if config.client_secret is not None:
            quoted = (
                urllib.parse.quote(config.client_id, safe=""),
                urllib.parse.quote(config.client_secret.reveal(), safe=""),
            )
            pair = base64.b64encode(":".join(quoted).encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        else:
            fields = fields | {"client_id": config.client_id}
        return await self._asked(places["token_endpoint"], fields, headers)

    async def _find_places(self) -> dict[str, str]:
        now = self._clock.monotonic()
        if not self._places or now - self._places_at > DOCUMENT_S:
            base = self._config.issuer.rstrip("/")
            found = await self._asked(f"{base}/.well-known/openid-configuration")
            if found.get("issuer") != self._config.issuer:
                raise Unavailable("the issuer's document is of another issuer")
            wanted = ("authorization_endpoint", "token_endpoint")
            places = {name: str(found.get(name, "")) for name in wanted}
            if not all(place.startswith(SAFE) for place in places.values()):
                raise Unavailable("the issuer's document names places that are not https")
            self._places, self._places_at = places, now
        return self._places

    async def _asked(
        self, url: str, fields: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            text = await asyncio.to_thread(fetched, url, fields, headers or {})
            return msgspec.json.decode(text, type=dict[str, Any])
        except urllib.error.HTTPError as error:
            if fields is None:
                raise Unavailable(f"the issuer answered {error.code}") from None
            raise Unauthorized(
                f"the issuer did not take that ({error.code}): begin again"
            ) from None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("the issuer does not answer", url=url, reason=str(error))
            raise Unavailable("the issuer does not answer; try again in a moment") from None

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        old = [id for id, each in self._pending.items() if now - each.began_at > PENDING_S]
        for id in old:
            del self._pending[id]
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]


def challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def fetched(url: str, fields: dict[str, str] | None, headers: dict[str, str]) -> bytes:
    """Blocks. Raises `OSError` or `ValueError`."""
    data = None if fields is None else urllib.parse.urlencode(fields).encode()
    asked = urllib.request.Request(url, data, {"Accept": "application/json"} | headers)
    with _OPENER.open(asked, timeout=TIMEOUT_S) as answer:
        text = bytes(answer.read(SIZE_MAX + 1))
    if len(text) > SIZE_MAX:
        raise ValueError(f"more than {SIZE_MAX} bytes")
    return text


class _StaysThere(urllib.request.HTTPRedirectHandler):
    """A code or a secret goes where the issuer said, and nowhere else."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_StaysThere)
