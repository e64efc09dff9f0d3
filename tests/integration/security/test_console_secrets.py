"""S4.9 for the console: passwords, sessions, tokens and the issuer's secret are nowhere else."""

import logging
from pathlib import Path

import pytest

from ternmq import connect
from ternmq.console.login.oidc_login import OidcClientConfig
from ternmq.security.access.secret import Secret
from tests.integration.console.secured import PASSWORD, SecuredConsole, log_in, secured

WRONG = "canary-wrong-password-51c2"
OF_ISSUER = "canary-client-secret-90ab"
BODY = "canary-body-77e1"


async def use_it_rightly_and_wrongly(console: SecuredConsole) -> tuple[list[str], list[str]]:
    """What must not be found, and what people were answered."""
    secrets, answers = [WRONG, PASSWORD, OF_ISSUER], []
    async with console.browser() as http:
        answers.append((await log_in(http, "boss", WRONG)).text)
        answers.append((await log_in(http, "not.there", WRONG)).text)
        forged = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJib3NzIn0.Y2FuYXJ5LWZvcmdlZC10b2tlbg"
        secrets.append(forged)
        for path in ("/api/v1/topics", "/api/v1/nowhere", "/", "/access"):
            asked = await http.get(path, headers={"Authorization": f"Bearer {forged}"})
            answers += [asked.text, str(asked.headers)]
        answers.append((await http.get("/login/issuer")).text)
    async with console.browser("boss") as http:
        secrets += list(http.cookies.values())
        made = await http.post("/access/boss/token", data={"expires": "1h"})
        async with connect(console.as_user("boss"), password=PASSWORD, app="boss") as mq:
            token = (await mq.admin.create_token("boss")).token
            await mq.send("order.paid", BODY.encode())
        secrets.append(token)
        assert made.status_code < 500
        for path in (
            "/access",
            "/access/boss",
            "/requests",
            "/clients",
            "/cluster",
            "/jobs",
            "/api/v1/topics/%25access.boss",
            "/api/v1/documents",
            "/topics/%25accesskey.x/messages",
        ):
            answers.append((await http.get(path)).text)
        secret = await http.post(
            "/requests", data={"right": "read", "resource": "(", "reason": "x"}
        )
        answers.append(secret.text)
    async with console.browser() as http:
        bearer = {"Authorization": f"Bearer {token}"}
        for path in ("/api/v1/topics", "/api/v1/nowhere", "/api/v1/topics/none", "/api/v1/clients"):
            asked = await http.get(path, headers=bearer)
            answers += [asked.text, str(asked.headers)]
        bad = await http.post("/api/v1/topics/x/messages", headers=bearer, content=b"\xff{")
        answers.append(bad.text)
    return secrets, answers


def found_in_files(folder: Path, secret: str) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if secret.encode() in path.read_bytes()]


async def test_secrets_of_people_and_of_the_issuer_are_in_no_log_answer_or_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    oidc = OidcClientConfig(
        issuer="https://127.0.0.1:9", client_id="tern", client_secret=Secret(OF_ISSUER)
    )
    assert OF_ISSUER not in repr(oidc)
    async with secured(tmp_path, seeds=False, oidc=oidc) as console:
        async with connect(console.as_user("boss"), password=PASSWORD, app="boss") as mq:
            await mq.admin.create_topic("order.paid")
        secrets, answers = await use_it_rightly_and_wrongly(console)
        secrets.append(console.admin_password)
        async with connect(console.as_user("boss"), password=PASSWORD, app="boss") as mq:
            answers += [repr(await mq.admin.sessions()), repr(await mq.admin.tokens())]

    assert len(secrets) > 6
    for secret in secrets:
        assert not [text[:300] for text in answers if secret in text], secret
        assert secret not in caplog.text
        allowed = {"admin-password"} if secret == secrets[-1] else set()
        assert set(found_in_files(tmp_path, secret)) <= allowed
    assert BODY not in caplog.text
