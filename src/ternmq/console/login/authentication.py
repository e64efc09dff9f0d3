"""The door before every page and call where people log in: who asks, or where to log in.

A call with `Authorization: Bearer …` comes by that token, and by nothing else that it brings. A
browser comes by its session's cookie; what it changes must have been sent by a page of ours, and
its browser must say so. Who comes by neither is sent to the login (a page) or told how (a call).
What stands behind finds the caller in the scope of the request. While an answer lasts, as a stream
does, the caller is asked for again and again: whose token ends is cut off.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ternmq.api.answers import json_answer
from ternmq.api.callers import Caller, Callers, user_in
from ternmq.api.problems import MEDIA_TYPE, headers_of, problem, status_of
from ternmq.api.service import SERVICE
from ternmq.console.login.attempts import LoginAttempts
from ternmq.console.login.oidc_login import OidcLogin
from ternmq.console.login.sessions import ConsoleSession, ConsoleSessions
from ternmq.console.web_guard import SAFE_METHODS
from ternmq.core.errors import Forbidden, TernError, Unauthorized
from ternmq.security.access.secret import Secret

CALLER: Final = "tern.caller"
OPEN = ("/login", "/static/")
"""Where everybody may go."""
BEARER: Final = "bearer "
CHECK_S = 2.0
BY_TOKEN: Final = "a token"
"""Failures of tokens are counted by address, as of this user, whom nobody can be."""

Fail = Callable[[Scope, TernError], Awaitable[Response]]
"""A page that says what went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookies:
    """Names and manners of ours; `__Host-` binds one to this very host and to TLS."""

    secure: bool

    def name(self, of: str) -> str:
        return f"__Host-tern-{of}" if self.secure else f"tern-{of}"

    def read(self, headers: Headers, of: str) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.name(of))
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def set(self, answer: Response, of: str, value: str, max_age: int | None = None) -> None:
        answer.set_cookie(
            self.name(of),
            value,
            max_age=max_age,
            path="/",
            secure=self.secure,
            httponly=True,
            samesite="lax",
        )

    def drop(self, answer: Response, of: str) -> None:
        answer.delete_cookie(
            self.name(of), path="/", secure=self.secure, httponly=True, samesite="lax"
        )


def from_own_page(headers: Headers) -> bool:
    """Did the browser say that a page of ours sent this?"""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] == headers.get("host", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLogins:
    """What lets people in."""

    sessions: ConsoleSessions
    callers: Callers
    attempts: LoginAttempts
    cookies: Cookies
    oidc: OidcLogin | None
    user_claim: str = "sub"

    async def end(self, session: ConsoleSession) -> None:
        """A session is over: its token is good for nothing any more."""
        login = session.login
        if login.ours:
            try:
                async with (
                    asyncio.timeout(5),
                    self.callers.using(login.user, login.token) as caller,
                ):
                    await caller.service.mq.admin.end_token()
            except (TernError, TimeoutError):
                pass  # It ended already, or does so by its own time.
        await self.callers.forget(login.token)


class LoginMiddleware:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, doors: ConsoleLogins, fail: Fail) -> None:
        self._app = app
        self._doors = doors
        self._fail = fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            user, token = await self._who(scope, headers)
            async with self._doors.callers.using(user, token) as caller:
                scope[CALLER], scope[SERVICE] = caller, caller.service
                await while_known(caller, self._app(scope, receive, send))
        except Forbidden as error:  # It is known who asks.
            await (await self._refused(scope, error))(scope, receive, send)
        except Unauthorized as error:
            self._note_failure(scope, headers)
            await (await self._nobody(scope, error))(scope, receive, send)
        except TernError as error:
            await (await self._refused(scope, error))(scope, receive, send)

    async def _who(self, scope: Scope, headers: Headers) -> tuple[str, Secret]:
        given = headers.get("authorization", "")
        if given.lower().startswith(BEARER):
            self._doors.attempts.check(address_of(scope), BY_TOKEN)
            text = given[len(BEARER) :].strip()
            return user_in(text, self._doors.user_claim), Secret(text)
        id = self._doors.cookies.read(headers, "session")
        session = self._doors.sessions.find(id, used=scope["path"] != "/live") if id else None
        if session is None:
            raise Unauthorized("log in first: with a session of the console, or a token as Bearer")
        if scope["method"] not in SAFE_METHODS and not from_own_page(headers):
            raise Forbidden("this request was not sent by a page of this console")
        await self._renew(id, session)
        return session.user, session.login.token

    async def _renew(self, id: str, session: ConsoleSession) -> None:
        oidc = self._doors.oidc
        if oidc is None or session.login.ours or not oidc.needs_renewal(session.login):
            return
        try:
            session.login = await oidc.renew(session.login)
        except Unauthorized:
            self._doors.sessions.end(id)
            raise

    def _note_failure(self, scope: Scope, headers: Headers) -> None:
        if headers.get("authorization", "").lower().startswith(BEARER):
            self._doors.attempts.failed(address_of(scope), BY_TOKEN)
        else:
            self._doors.sessions.end(self._doors.cookies.read(headers, "session"))

    async def _nobody(self, scope: Scope, error: Unauthorized) -> Response:
        if is_call(scope) or scope["method"] not in SAFE_METHODS:
            return problem_answer(error, {"WWW-Authenticate": 'Bearer realm="tern"'})
        if scope["path"] == "/live":
            return problem_answer(error)
        query = scope.get("query_string", b"").decode("latin-1")
        back = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(back, safe='')}", 303)

    async def _refused(self, scope: Scope, error: TernError) -> Response:
        return problem_answer(error) if is_call(scope) else await self._fail(scope, error)


async def while_known(caller: Caller, answering: Awaitable[None]) -> None:
    """Answer, as long as the cluster knows who asks."""
    task = asyncio.ensure_future(answering)
    try:
        while not (await asyncio.wait({task}, timeout=CHECK_S))[0]:
            try:
                await caller.check()
            except Unauthorized:
                break
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def is_call(scope: Scope) -> bool:
    """Of a program, not of a page."""
    return str(scope["path"]).startswith("/api/v1")


def problem_answer(error: TernError, headers: dict[str, str] | None = None) -> Response:
    more = headers_of(error) | (headers or {})
    return json_answer(problem(error), status_of(error), media_type=MEDIA_TYPE, headers=more)


def address_of(scope: Scope) -> str:
    """Of who is connected: what a proxy says of others can be forged."""
    client = scope.get("client")
    return client[0] if client else ""


def _is_open(path: str) -> bool:
    return path == OPEN[0] or path.startswith((f"{OPEN[0]}/", OPEN[1]))
