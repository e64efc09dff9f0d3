"""Logins at a console over a cluster with security on: sessions, cookies, throttling, tokens."""

from pathlib import Path
from typing import Any

import httpx

from ternmq import connect
from ternmq.console.login.sessions import OF_USER_MAX
from tests.integration.console.secured import PASSWORD, log_in, secured
from tests.waiting import until

PLANTED = "chosen-by-somebody-else"


def cookie_of(answer: httpx.Response) -> str:
    return next(x for x in answer.headers.get_list("set-cookie") if "session=" in x)


async def test_a_person_logs_in_sees_pages_and_logs_out_for_good(tmp_path: Path) -> None:
    async with secured(tmp_path) as console, console.browser() as http:
        sent = await http.get("/topics?q=order")
        shown = await http.get(sent.headers["location"])
        came = await http.post(
            "/login", data={"user": "viewer", "password": PASSWORD, "next": "/topics?q=order"}
        )
        cookie = cookie_of(came)
        page = await http.get(came.headers["location"])
        id = http.cookies["tern-session"]
        left = await http.post("/logout")
        again = await http.get("/topics", headers={"Cookie": f"tern-session={id}"})
        async with connect(console.as_user("admin"), password=console.admin_password) as mq:
            tokens = await mq.admin.tokens("viewer")

    assert (
        sent.status_code == 303 and sent.headers["location"] == "/login?next=%2Ftopics%3Fq%3Dorder"
    )
    assert shown.status_code == 200 and 'value="/topics?q=order"' in shown.text
    assert came.status_code == 303
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie
    assert page.status_code == 200 and "order.paid" in page.text and "<b>viewer</b>" in page.text
    assert left.status_code == 303 and left.headers["location"] == "/login"
    assert again.status_code == 303
    assert [token.revoked for token in tokens] == [True], "the token of a session ends with it"


async def test_a_wrong_password_an_unknown_user_and_a_bad_name_are_answered_alike(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        answers = [
            await log_in(http, user, password)
            for user, password in (
                ("viewer", "wrong"),
                ("no-such-user", PASSWORD),
                ("not a name", PASSWORD),
                ("viewer", ""),
            )
        ]

    assert {answer.status_code for answer in answers} == {401}
    for answer in answers:
        assert "This name or password is wrong." in answer.text
        assert "tern-session" not in answer.headers.get("set-cookie", "")
        assert PASSWORD not in answer.text


async def test_who_fails_too_often_waits_and_others_do_not(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        failed = [(await log_in(http, "viewer", "wrong")).status_code for _ in range(6)]
        right = await log_in(http, "viewer")
        other = await log_in(http, "reader")
        async with connect(console.as_user("viewer"), password=PASSWORD) as mq:
            direct = await mq.admin.whoami()

    assert failed == [401] * 5 + [429]
    assert right.status_code == 429 and "wait" in right.text
    assert int(right.headers["retry-after"]) > 0
    assert other.status_code == 303
    assert direct.user == "viewer", "the servers did not have to send anybody away"


async def test_a_login_makes_a_new_session_and_ends_the_one_that_was_brought(
    tmp_path: Path,
) -> None:
    """An id that somebody else put into the browser is good for nothing."""
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        form = {"user": "viewer", "password": PASSWORD}
        await http.post("/login", data=form, headers={"Cookie": f"tern-session={PLANTED}"})
        first = http.cookies["tern-session"]
        await log_in(http, "reader")
        second = http.cookies["tern-session"]
        http.cookies.clear()
        old = await http.get("/", headers={"Cookie": f"tern-session={first}"})
        planted = await http.get("/", headers={"Cookie": f"tern-session={PLANTED}"})
        good = await http.get("/", headers={"Cookie": f"tern-session={second}"})

    assert len({PLANTED, first, second}) == 3
    assert (old.status_code, planted.status_code, good.status_code) == (303, 303, 200)


async def test_a_user_that_is_removed_is_out_and_its_streams_end(tmp_path: Path) -> None:
    async with secured(tmp_path, listens=True) as console, console.browser("viewer") as http:
        assert (await http.get("/")).status_code == 200
        async with (
            http.stream("GET", "/live?at=/topics") as stream,
            connect(console.as_user("admin"), password=console.admin_password) as mq,
        ):
            await mq.admin.remove_user("viewer")
            try:
                async for _ in stream.aiter_bytes():
                    pass
            except httpx.RemoteProtocolError:
                pass  # Cut off in the middle.

        async def out() -> bool:
            return (await http.get("/")).status_code == 303

        await until(out, "the session is over")


async def test_what_another_site_sends_changes_nothing(tmp_path: Path) -> None:
    """A session is a cookie, so every change must be sent by a page of ours."""
    async with secured(tmp_path) as console, console.browser("boss") as http:
        cookie = {"Cookie": f"tern-session={http.cookies['tern-session']}"}
        url, form = f"{console.origin}/do/pause-topic", {"topic": "order.paid"}
        transport: Any = httpx.ASGITransport(console.app)
        statuses = []
        for headers in (
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site"},
            {},
        ):
            async with httpx.AsyncClient(transport=transport) as other:
                answer = await other.post(url, data=form, headers=headers | cookie)
                call = await other.post(
                    f"{console.origin}/api/v1/actions/pause-topic",
                    json=form,
                    headers=headers | cookie,
                )
                statuses += [answer.status_code, call.status_code]
        foreign = await http.post(
            "/login", data={"user": "viewer", "password": PASSWORD}, headers={"Origin": "null"}
        )
        told = await http.get("/api/v1/topics/order.paid")
        assert told.status_code == 200, told.text
        paused = told.json()["settings"]["paused"]
        own = await http.post("/do/pause-topic", data=form)

    assert set(statuses) == {403}
    assert foreign.status_code == 403
    assert paused is False
    assert own.status_code == 200


async def test_sessions_of_one_user_are_bounded_the_oldest_goes(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console:
        ids = []
        for _ in range(OF_USER_MAX + 1):
            async with console.browser("viewer") as http:
                ids.append(http.cookies["tern-session"])
        async with console.browser() as http:
            statuses = [
                (await http.get("/", headers={"Cookie": f"tern-session={id}"})).status_code
                for id in (ids[0], ids[1], ids[-1])
            ]

    assert statuses == [303, 200, 200]


async def test_next_leads_nowhere_else(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        for wrong in ("//evil.example", "https://evil.example", "/\\evil.example", "/\r\nX: y"):
            came = await http.post(
                "/login", data={"user": "viewer", "password": PASSWORD, "next": wrong}
            )
            assert came.headers["location"] == "/", wrong
