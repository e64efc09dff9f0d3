"""The pages about users: made, given roles, told tokens once, taken away; only by who may grant."""

from pathlib import Path

import httpx

from ternmq import connect
from tests.integration.console.secured import PASSWORD, log_in, secured
from tests.waiting import until


async def test_an_admin_makes_a_user_gives_a_role_and_the_user_can_work(tmp_path: Path) -> None:
    async with secured(tmp_path) as console, console.browser("boss") as http:
        made = await http.post("/access", data={"user": "anna", "password": PASSWORD})
        of = {"user": "anna", "role": "reader", "topics": "order.*"}
        preview = await http.get("/do/give-role", params=of)
        async with console.browser() as anna:
            early = await log_in(anna, "anna")
            before = await anna.get("/topics/order.paid/messages")
            given = await http.post("/do/give-role", data=of)

            async def reads() -> bool:
                return (await anna.get("/topics/order.paid/messages")).status_code == 200

            await until(reads, "the role counts")

            async def shown() -> bool:
                return "topic:order.*" in (await anna.get("/access")).text

            await until(shown, "the console knows it, too")
            own = await anna.get("/access")
            other = await anna.get("/access/boss")
        page = await http.get("/access/anna")
        listed = await http.get("/access")

    assert made.status_code == 200 and PASSWORD not in made.text
    assert "would become reader of order.*" in preview.text
    assert early.status_code == 303 and before.status_code == 404
    assert "2 new lines" in given.text
    assert "topic:order.*" in own.text and 'href="/access/boss"' not in own.text
    assert other.status_code == 403
    assert page.text.count("Take away …") == 2
    assert 'href="/access/anna"' in listed.text


async def test_a_token_is_shown_once_and_revoked_with_its_name_typed(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser("boss") as http:
        made = await http.post("/access/viewer/token", data={"expires": "1h"})
        token = made.text.partition('data-copy="')[2].partition('"')[0]
        again = await http.get("/access/viewer")
        async with connect(console.as_user("viewer"), token=token) as mq:
            id = (await mq.admin.whoami()).token_id
        untyped = await http.post("/do/revoke-token", data={"user": "viewer", "token": id})
        revoked = await http.post(
            "/do/revoke-token", data={"user": "viewer", "token": id, "typed": "viewer"}
        )
        quota = await http.post(
            "/do/set-quota", data={"user": "viewer", "limit": "rate", "value": "500"}
        )
        page = await http.get("/access/viewer")

    assert token.count(".") == 2
    assert token not in again.text and id in again.text
    assert untyped.status_code == 400
    assert "good for nothing" in revoked.text and "revoked" in page.text
    assert quota.status_code == 200 and "<dd>500</dd>" in page.text


async def test_a_user_is_removed_and_is_out(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser("boss") as http:
        wrong = await http.post("/do/remove-user", data={"user": "viewer", "typed": "reader"})
        done = await http.post("/do/remove-user", data={"user": "viewer", "typed": "viewer"})
        async with console.browser() as gone:
            refused = await log_in(gone, "viewer")

    assert wrong.status_code == 400 and done.status_code == 200
    assert refused.status_code == 401


async def test_who_may_not_grant_changes_nobody(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser("operator") as http:
        answers: list[httpx.Response] = [
            await http.post("/access", data={"user": "mine", "password": PASSWORD}),
            await http.post("/access/boss/token", data={"expires": "1h"}),
            await http.post(
                "/do/add-grant", data={"user": "operator", "right": "grant", "resource": "*"}
            ),
            await http.post(
                "/api/v1/actions/give-role",
                json={"user": "operator", "role": "admin", "topics": "*"},
            ),
            await http.get("/access/boss"),
        ]
        own = await http.get("/access")

    assert [answer.status_code for answer in answers] == [403] * 5
    assert own.status_code == 200 and "Make a user" not in own.text
