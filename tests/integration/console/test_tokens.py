"""Calls with tokens, logins by an issuer, and TLS, at a console over a cluster with security on."""

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from ternmq import connect
from ternmq.console.config import ConsoleConfig
from ternmq.console.login.oidc_login import OidcClientConfig
from ternmq.core.errors import BadConfig
from tests.integration.console.secured import PASSWORD, SecuredConsole, secured
from tests.oidc_issuer import AUDIENCE, OidcIssuer, issuing
from tests.tls_files import TlsFiles
from tests.waiting import until


async def token_of(console: SecuredConsole, user: str, **options: object) -> str:
    async with connect(console.as_user(user), password=PASSWORD) as mq:
        return (await mq.admin.create_token(user, **options)).token  # type: ignore[arg-type]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_call_with_a_token_has_the_rights_of_its_user_and_no_more(tmp_path: Path) -> None:
    async with secured(tmp_path) as console, console.browser() as http:
        http.headers.clear()
        viewer, boss = await token_of(console, "viewer"), await token_of(console, "boss")
        narrow = await token_of(console, "boss", narrow=[("read", "order.paid")])
        path = "/api/v1/topics/order.paid/messages?limit=1"
        read = await http.get(path, headers=bearer(viewer))
        sent = await http.post(
            "/api/v1/topics/order.paid/messages",
            json={"messages": [{"text": "by boss"}]},
            headers=bearer(boss) | {"Origin": "https://elsewhere.example"},
        )
        narrow_reads = await http.get(path, headers=bearer(narrow))
        narrow_sends = await http.post(
            "/api/v1/topics/order.paid/messages",
            json={"messages": [{"text": "no"}]},
            headers=bearer(narrow),
        )
        newest = await http.get(
            "/api/v1/topics/order.paid/messages?limit=1&order=newest", headers=bearer(boss)
        )

    assert read.status_code == 403 and read.json()["code"] == "forbidden"
    assert "'viewer' may not read" in read.json()["detail"]
    assert sent.status_code == 200, "no browser sends a token by itself, so no site is asked for"
    assert narrow_reads.status_code == 200
    assert narrow_sends.status_code == 403
    assert newest.json()["items"][0]["app"] == "boss"


async def test_what_is_no_token_or_has_ended_is_401_with_a_word_how(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        token = await token_of(console, "viewer")
        good = await http.get("/api/v1/topics", headers=bearer(token))
        async with connect(console.as_user("viewer"), password=PASSWORD) as mq:
            await mq.admin.revoke_tokens("viewer")

        async def ended() -> bool:
            answer = await http.get("/api/v1/topics", headers=bearer(token))
            return answer.status_code == 401

        await until(ended, "the token is of no use")
        answers = [
            await http.get("/api/v1/topics", headers=headers)
            for headers in (
                {},
                bearer("nonsense"),
                bearer(token[:-4] + "AAAA"),
                bearer(token),
                {"Authorization": "Basic dmlld2VyOng="},
            )
        ]

    assert good.status_code == 200
    for answer in answers:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json()["code"] == "unauthorized"


async def test_who_guesses_tokens_waits(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser() as http:
        found = [
            (await http.get("/api/v1/topics", headers=bearer("a.b.c"))).status_code
            for _ in range(6)
        ]

    assert found[0] == 401 and found[-1] == 429


def issuer_options(issuer: OidcIssuer) -> dict[str, Any]:
    config = OidcClientConfig(issuer=issuer.url, client_id=AUDIENCE)
    return {"settings": issuer.settings, "oidc": config, "seeds": False}


async def through_issuer(http: httpx.AsyncClient) -> httpx.Response:
    """As a browser goes: to the issuer, and back with what it gave."""
    begun = await http.get("/login/issuer?next=/topics")
    assert begun.status_code == 303, begun.text
    async with httpx.AsyncClient() as outside:
        approved = await outside.get(begun.headers["location"])
    return await http.get(approved.headers["location"])


async def test_a_person_logs_in_by_an_issuer_and_is_that_user_here(tmp_path: Path) -> None:
    """The code flow with PKCE; the issuer says who, the grants of the cluster say what (0028)."""
    with issuing() as issuer:
        async with secured(tmp_path, **issuer_options(issuer)) as console:
            async with console.browser() as http:
                login = await http.get("/login")
                came = await through_issuer(http)
                page = await http.get(came.headers["location"])
                used = http.cookies.get("tern-login")
            issuer.person = "stranger"
            async with console.browser() as http:
                unknown = await through_issuer(http)

    assert "Log in with your organisation" in login.text
    assert came.status_code == 303 and came.headers["location"] == "/topics"
    assert page.status_code == 200 and "<b>viewer</b>" in page.text
    assert not used, "what the login began with is gone"
    assert unknown.status_code == 401 and "tern-session" not in str(unknown.headers)


async def test_a_login_of_another_browser_or_with_another_nonce_is_refused(tmp_path: Path) -> None:
    with issuing() as issuer:
        async with secured(tmp_path, **issuer_options(issuer)) as console:
            async with console.browser() as http, console.browser() as victim:
                begun = await http.get("/login/issuer")
                async with httpx.AsyncClient() as outside:
                    approved = await outside.get(begun.headers["location"])
                stolen = await victim.get(approved.headers["location"])
                await victim.get("/login/issuer")
                crossed = await victim.get(approved.headers["location"])
                twice = [await http.get(approved.headers["location"]) for _ in range(2)]
            issuer.nonce = "of another login"
            async with console.browser() as http:
                replayed = await through_issuer(http)

    assert stolen.status_code == crossed.status_code == 401
    assert [answer.status_code for answer in twice] == [303, 401]
    assert replayed.status_code == 401 and "not for this login" in replayed.text


async def test_a_session_goes_on_with_the_next_token_of_the_issuer(tmp_path: Path) -> None:
    with issuing() as issuer:
        issuer.gives_more, issuer.lasts_s = True, 30.0
        async with (
            secured(tmp_path, **issuer_options(issuer)) as console,
            console.browser() as http,
        ):
            await through_issuer(http)
            issuer.lasts_s = 600.0
            pages = [(await http.get("/topics")).status_code for _ in range(3)]

    assert pages == [200] * 3
    assert issuer.refreshed == 1


async def test_over_tls_the_cookie_is_bound_to_this_host(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca")
    made = files.server()
    options = {"certificate_file": str(made.certificate), "key_file": str(made.key)}
    async with secured(tmp_path / "data", listens=True, seeds=False, **options) as console:
        context = ssl.create_default_context(cafile=str(files.ca))
        headers = {"Origin": console.origin}
        async with httpx.AsyncClient(
            verify=context, base_url=console.origin, headers=headers
        ) as http:
            came = await http.post("/login", data={"user": "viewer", "password": PASSWORD})
            page = await http.get("/")

    assert console.origin.startswith("https://")
    cookie = next(x for x in came.headers.get_list("set-cookie") if "session" in x)
    assert cookie.startswith("__Host-tern-session=") and "Secure" in cookie
    assert page.status_code == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "tern://127.0.0.1:1", "host": "0.0.0.0"}, "loopback only"),
        ({"url": "tern://a@127.0.0.1:1", "host": "0.0.0.0"}, "without TLS"),
        ({"url": "tern://a@127.0.0.1:1", "certificate_file": "x"}, "come together"),
        ({"url": "tern://a@127.0.0.1:1", "idle_s": 1.0}, "idle_s must be 60 to 604800, got 1.0"),
        (
            {"url": "tern://a@127.0.0.1:1", "idle_s": 900, "lasts_s": 90},
            "cannot be idle for longer",
        ),
        ({"url": "tern://a@127.0.0.1:1", "port": 70_000}, "port must be 0 to 65535"),
        ({"url": "tern://a@127.0.0.1:1", "insecure": "no"}, "insecure must be true or false"),
        ({"url": 7}, "url must be a text"),
    ],
)
def test_a_console_that_others_reach_has_logins_and_tls(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises(BadConfig, match=words):
        ConsoleConfig(**options)  # type: ignore[arg-type]
    assert ConsoleConfig(url="tern://127.0.0.1:1", host="0.0.0.0", insecure=True).exposed
