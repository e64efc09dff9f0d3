"""The pages by which people come and go: `/login`, `/login/issuer`, `/login/back`, `/logout`.

A login that succeeds makes a session with a new id, and ends the one that the browser brought: an
id that somebody else had put there is good for nothing. Answers say nothing about which of name and
password was wrong, or whether a user exists. What went wrong is told in words, with the status that
programs know. Never writes a password or a token anywhere.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ternmq.api.problems import headers_of, status_of
from ternmq.console.login.authentication import ConsoleLogins, address_of, from_own_page
from ternmq.console.login.oidc_login import PENDING_S, OidcLogin
from ternmq.console.login.password_login import WRONG, PasswordLogin
from ternmq.console.login.sessions import LoggedIn
from ternmq.console.page import own_path
from ternmq.console.render import Renderer
from ternmq.core.errors import Forbidden, TernError, Unauthorized, Unavailable
from ternmq.core.log import get_logger

FIELDS_MAX = 10
SWEEP_S = 30.0

log = get_logger()


class LoginSite:
    """Answers those pages."""

    def __init__(self, doors: ConsoleLogins, passwords: PasswordLogin, renderer: Renderer) -> None:
        self.doors = doors
        self._passwords = passwords
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/login", self._show),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/login/issuer", self._to_issuer),
            Route("/login/back", self._from_issuer),
            Route("/logout", self._log_out, methods=["POST"]),
        ]

    async def run(self) -> None:
        """End sessions that nobody uses."""
        while True:
            await asyncio.sleep(SWEEP_S)
            for session in self.doors.sessions.expired():
                await self.doors.end(session)

    async def close(self) -> None:
        """Nobody stays logged in at a console that is gone."""
        sessions = self.doors.sessions.end_all()
        await asyncio.gather(*(self.doors.end(each) for each in sessions), return_exceptions=True)

    async def _show(self, request: Request) -> Response:
        back = own_path(request.query_params.get("next", "/"))
        return self._page(request, {"next": back})

    async def _log_in(self, request: Request) -> Response:
        async with request.form(max_files=0, max_fields=FIELDS_MAX) as form:
            given = {name: str(form.get(name, "")) for name in ("user", "password", "next")}
        user, address = given["user"].strip(), address_of(request.scope)
        back = own_path(given["next"])
        facts = {"next": back, "user": user}
        try:
            if not from_own_page(request.headers):
                raise Forbidden("this login was not sent by a page of this console")
            self.doors.attempts.check(address, user)
            login = await self._passwords.log_in(user, given["password"])
        except Forbidden as error:
            return self._page(request, facts, error)
        except Unauthorized as error:
            self.doors.attempts.failed(address, user)
            log.warning("a login failed", user=user[:64], address=address)
            return self._page(request, facts, Unauthorized(WRONG, **error.details))
        except TernError as error:
            return self._page(request, facts, error)
        return await self._come_in(request, login, back)

    async def _come_in(self, request: Request, login: LoggedIn, back: str) -> Response:
        doors = self.doors
        before = doors.sessions.end(doors.cookies.read(request.headers, "session"))
        try:
            id, gone = doors.sessions.begin(login, address_of(request.scope))
        except TernError as error:
            return self._page(request, {"next": back}, error)
        for session in [*gone, *([before] if before is not None else [])]:
            await doors.end(session)
        answer = RedirectResponse(back, HTTPStatus.SEE_OTHER)
        doors.cookies.set(answer, "session", id)
        doors.cookies.drop(answer, "login")
        return answer

    async def _to_issuer(self, request: Request) -> Response:
        back = own_path(request.query_params.get("next", "/"))
        try:
            id, place = await self._issuer().begin(back)
        except TernError as error:
            return self._page(request, {"next": back}, error)
        answer = RedirectResponse(place, HTTPStatus.SEE_OTHER)
        self.doors.cookies.set(answer, "login", id, max_age=int(PENDING_S))
        return answer

    async def _from_issuer(self, request: Request) -> Response:
        id = self.doors.cookies.read(request.headers, "login")
        try:
            login, back = await self._issuer().finish(id, dict(request.query_params))
            async with self.doors.callers.using(login.user, login.token):
                pass  # The cluster takes it: signature, audience, user.
        except TernError as error:
            answer = self._page(request, {}, error)
            self.doors.cookies.drop(answer, "login")
            return answer
        return await self._come_in(request, login, back)

    async def _log_out(self, request: Request) -> Response:
        doors = self.doors
        session = doors.sessions.end(doors.cookies.read(request.headers, "session"))
        if session is not None:
            await doors.end(session)
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        doors.cookies.drop(answer, "session")
        answer.headers["Clear-Site-Data"] = '"cache"'
        return answer

    def _issuer(self) -> OidcLogin:
        if self.doors.oidc is None:
            raise Unavailable("no issuer is set for this console")
        return self.doors.oidc

    def _page(
        self, request: Request, facts: Mapping[str, str], error: TernError | None = None
    ) -> Response:
        shown = {
            "next": "/",
            "user": "",
            "error": "" if error is None else error.message,
            "issuer": self.doors.oidc is not None,
            **facts,
        }
        html = self._renderer.bare("login.html", shown, request.cookies.get("theme", ""))
        status = 200 if error is None else status_of(error)
        more = {"Cache-Control": "no-store"} | ({} if error is None else headers_of(error))
        return HTMLResponse(html, status, headers=more)
