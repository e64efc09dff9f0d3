"""The console as one ASGI application: pages, live streams, actions, static files, the API below.

Which page answers which path is `ROUTES`; the live stream of a page finds it by the same table. An
error on purpose is a page that says what to do, with the right status; a bug is a 500 without an
inside, and its traceback goes to the log.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, compile_path
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from ternmq.api.callers import Caller
from ternmq.api.problems import status_of
from ternmq.console.live_pages import LivePages
from ternmq.console.login.authentication import CALLER, LoginMiddleware
from ternmq.console.login.login_site import LoginSite
from ternmq.console.page import AskedUrl, Console, PageFunction, ShownPage
from ternmq.console.pages import (
    action,
    api_page,
    clients,
    cluster,
    delayed,
    group,
    half,
    jobs,
    letters,
    message,
    messages,
    overview,
    search,
    topic,
)
from ternmq.console.people import access, requests
from ternmq.console.render import FOLDER, Renderer
from ternmq.console.web_guard import WebGuard
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.log import get_logger

log = get_logger()

ROUTES: Mapping[str, PageFunction] = {
    "/": overview.overview,
    "/topics": topic.topic_list,
    "/topics/{topic}": topic.topic_page,
    "/topics/{topic}/messages": messages.messages_page,
    "/topics/{topic}/send": message.send_page,
    "/topics/{topic}/groups/{group}": group.group_page,
    "/groups": group.group_list,
    "/m/{id}": message.message_page,
    "/dead": letters.dead_list,
    "/dead/{group}": letters.dead_page,
    "/refused/{topic}": letters.refused_page,
    "/delayed": delayed.delayed_page,
    "/half": half.half_page,
    "/jobs": jobs.job_list,
    "/jobs/{job}": jobs.job_page,
    "/clients": clients.clients_page,
    "/cluster": cluster.cluster_page,
    "/access": access.access_page,
    "/access/{user}": access.user_page,
    "/requests": requests.requests_page,
    "/search": search.search_page,
    "/api": api_page.api_page,
    "/do/{action}": action.preview_page,
}
FORM_FIELDS_MAX = 4_000
_COMPILED = [(compile_path(path)[0], function) for path, function in ROUTES.items()]


def find_page(url: str) -> tuple[PageFunction, AskedUrl]:
    """The page of one of our URLs; `BadRequest` where there is none."""
    parts = urlsplit(url)
    for pattern, function in _COMPILED:
        match = pattern.match(parts.path)
        if match:
            query = joined_fields(parse_qsl(parts.query))
            return function, AskedUrl(path=parts.path, names=match.groupdict(), query=query)
    raise BadRequest(f"there is no page {parts.path[:80]!r}")


class ConsoleSite:
    """Answers requests for pages."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.renderer = Renderer()
        self.live = LivePages(console.watch, self._live)

    def _for(self, caller: Caller | None) -> Console:
        """As this caller has it; None: nobody logs in here."""
        if caller is None:
            return self._console
        own = caller.service
        return replace(
            self._console, mq=own.mq, watch=own.watch, browser=own.browser, rights=own.rights
        )

    def routes(self) -> list[Route]:
        pages = [Route(path, self._answering(function)) for path, function in ROUTES.items()]
        return [
            *pages,
            Route("/do/{action}", self._do, methods=["POST"]),
            Route("/topics/{topic}/send", self._send, methods=["POST"]),
            Route("/access", self._posted(access.add_user), methods=["POST"]),
            Route("/requests", self._posted(requests.ask), methods=["POST"]),
            Route("/requests/{id}", self._posted(requests.decide), methods=["POST"]),
            Route("/access/{user}/token", self._posted(access.make_token), methods=["POST"]),
            Route("/m/{id}/raw", self._raw),
            Route("/live", self._stream),
        ]

    def _answering(self, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            names = {name: str(value) for name, value in request.path_params.items()}
            asked = AskedUrl(
                path=request.url.path,
                names=names,
                query=joined_fields(request.query_params.multi_items()),
            )
            return await self._html(request, asked, function)

        return answer

    async def _html(self, request: Request, asked: AskedUrl, function: PageFunction) -> Response:
        console = self._for(request.scope.get(CALLER))
        try:
            await console.watch.fresh()
            page = await function(console, asked)
        except TernError as error:
            page = error_page(error)
        theme = request.cookies.get("theme", "")
        html = self.renderer.page(console, asked, page, theme)
        return HTMLResponse(html, page.status, headers={"Cache-Control": "no-store"})

    async def _do(self, request: Request) -> Response:
        """An action that was confirmed."""
        asked = AskedUrl(
            path=request.url.path,
            names={"action": str(request.path_params["action"])},
            query=await form_of(request),
        )
        return await self._html(request, asked, action.done_page)

    async def _send(self, request: Request) -> Response:
        names = {"topic": str(request.path_params["topic"])}
        asked = AskedUrl(path=request.url.path, names=names, query=await form_of(request))
        return await self._html(request, asked, message.sent_page)

    def _posted(self, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
        """A page that is made of a form, which is in no address."""

        async def answer(request: Request) -> Response:
            names = {name: str(value) for name, value in request.path_params.items()}
            asked = AskedUrl(path=request.url.path, names=names, query=await form_of(request))
            return await self._html(request, asked, function)

        return answer

    async def _raw(self, request: Request) -> Response:
        """The bytes of one body, to be kept and never to be shown by a browser."""
        try:
            console = self._for(request.scope.get(CALLER))
            topic = request.query_params.get("topic", "")
            found = await message.find_message(console, str(request.path_params["id"]), None, topic)
            view = await console.masked(
                AskedUrl(path=request.url.path, query=dict(request.query_params))
            )
            kept = found[0].message
            shown = view.of(kept.topic, kept.body, kept.properties)
        except TernError as error:
            return await self._html(request, AskedUrl(path=request.url.path), failing(error))
        headers = {"Content-Disposition": f'attachment; filename="{kept.id}.bin"'}
        return Response(shown.body, media_type="application/octet-stream", headers=headers)

    async def _stream(self, request: Request) -> Response:
        url = request.query_params.get("at", "/")
        try:
            find_page(url)
        except TernError as error:
            return await self._html(request, AskedUrl(path="/live"), failing(error))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        stream = self.live.stream(url, request.scope.get(CALLER))
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _live(self, url: str, caller: Caller | None) -> str:
        function, asked = find_page(url)
        console = self._for(caller)
        try:
            page = await function(console, asked)
        except TernError as error:
            page = error_page(error)
        return self.renderer.live(console, asked, page)

    async def refuse(self, scope: Scope, error: TernError) -> Response:
        """A page for who got no further than the door."""
        facts = {"text": error.message, "code": error.code}
        html = self.renderer.bare("refused.html", facts)
        return HTMLResponse(html, status_of(error), headers={"Cache-Control": "no-store"})

    async def failed(self, request: Request, problem: Exception) -> Response:
        """What is no page, or a bug."""
        if isinstance(problem, HTTPException):
            text, status = str(problem.detail), problem.status_code
        else:
            log.error("a page failed by a bug", path=request.url.path, exc_info=problem)
            text, status = "this is a bug of the console; its log says more", 500
        page = ShownPage(
            template="error.html", title=text, facts={"text": text, "code": str(status)}
        )
        asked = AskedUrl(path=request.url.path)
        console = self._for(request.scope.get(CALLER))
        html = self.renderer.page(console, asked, page, request.cookies.get("theme", ""))
        return HTMLResponse(html, status)


def error_page(error: TernError) -> ShownPage:
    facts = {"text": error.message, "code": error.code}
    return ShownPage(
        template="error.html", title="That did not work", facts=facts, status=status_of(error)
    )


def failing(error: TernError) -> PageFunction:
    async def fail(console: Console, asked: AskedUrl) -> ShownPage:
        raise error

    return fail


def joined_fields(given: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Of a query or a form; a name that comes several times is one text with spaces in between."""
    fields: dict[str, str] = {}
    for name, value in given:
        if isinstance(value, str):
            fields[name] = f"{fields[name]} {value}" if name in fields else value
    return fields


async def form_of(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=FORM_FIELDS_MAX) as form:
        return joined_fields(form.multi_items())


def make_site(site: ConsoleSite, api: ASGIApp, login: LoginSite | None = None) -> ASGIApp:
    """The application; with `login` nobody sees more of it than how to log in."""
    doors = (
        [] if login is None else [Middleware(LoginMiddleware, doors=login.doors, fail=site.refuse)]
    )
    return Starlette(
        routes=[
            Mount("/api/v1", api),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
            *([] if login is None else login.routes()),
            *site.routes(),
        ],
        middleware=[
            Middleware(WebGuard, any_host=login is not None),
            Middleware(GZipMiddleware, minimum_size=600),
            *doors,
        ],
        exception_handlers={HTTPException: site.failed, Exception: site.failed},
    )
