"""Every page as every kind of user: no failure, no dead link, no button that leads to a refusal."""

from collections import deque
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx

from ternmq.api.action_rights import ACTION_RIGHTS
from ternmq.api.actions import ACTIONS
from tests.integration.console.secured import ROLES, SecuredConsole, secured
from tests.integration.console.test_pages import ENDLESS, Links, shape_of

PAGES_MAX = 120
ELSEWHERE = ("/logout", "/login")
FORBIDDEN = {
    "viewer": (
        "/topics/order.paid/messages",
        "/topics/order.paid/send",
        "/dead/billing",
        "/clients",
        "/delayed",
        "/do/pause-topic?topic=order.paid",
        "/do/reset-group?topic=order.paid&group=billing&start=earliest",
        "/do/drain?broker_group=main",
        "/api/v1/topics/order.paid/messages",
        "/api/v1/dead/billing",
        "/api/v1/clients",
        "/api/v1/delayed",
    ),
    "reader": ("/topics/mail.outgoing/messages", "/dead/billing", "/clients", "/delayed"),
    "owner": ("/clients", "/do/drain?broker_group=main", "/do/pause-topic?topic=mail.outgoing"),
    "nobody": ("/clients", "/delayed", "/api/v1/delayed"),
}
NOT_THERE = {
    "owner": ("/topics/mail.outgoing", "/topics/mail.outgoing/messages"),
    "nobody": ("/topics/order.paid", "/api/v1/topics/order.paid"),
}
"""What one may not see is not there."""


async def crawl(http: httpx.AsyncClient) -> list[str]:
    """Every link and asking form from the first page on; all of them answer."""
    waiting, seen = deque(["/"]), ["/"]
    shapes: dict[str, int] = {}
    asked = 0
    while waiting and asked < PAGES_MAX:
        path = waiting.popleft()
        answer = await http.get(path)
        asked += 1
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[-1500:]}"
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        links = Links()
        links.feed(answer.text)
        for link in links.found:
            target = urldefrag(urljoin(path, link)).url
            shape = shape_of(target)
            new = target not in seen and shapes.get(shape, 0) < 3
            ours = target.startswith("/") and not target.startswith((*ENDLESS, *ELSEWHERE))
            if ours and new and "/static/" not in target:
                shapes[shape] = shapes.get(shape, 0) + 1
                seen.append(target)
                waiting.append(target)
    return seen


async def test_a_crawler_of_every_role_meets_no_refusal(tmp_path: Path) -> None:
    """What one may not is not led to; asked for by hand it is 403, on pages and in calls."""
    async with secured(tmp_path) as console:
        seen: dict[str, list[str]] = {}
        for role in ROLES:
            async with console.browser(role) as http:
                seen[role] = await crawl(http)
                for path in FORBIDDEN.get(role, ()):
                    answer = await http.get(path)
                    assert (role, path, answer.status_code) == (role, path, 403)
                    if path.startswith("/api/"):
                        assert answer.json()["code"] == "forbidden"
                for path in NOT_THERE.get(role, ()):
                    answer = await http.get(path)
                    assert (role, path, answer.status_code) == (role, path, 404)

    def leads(role: str, to: str) -> bool:
        return any(path.startswith(to) for path in seen[role])

    assert [role for role in ROLES if leads(role, "/clients")] == ["boss"]
    assert [role for role in ROLES if leads(role, "/m/")] == [
        "reader",
        "operator",
        "owner",
        "boss",
    ]
    assert [role for role in ROLES if leads(role, "/dead/billing")] == ["operator", "owner", "boss"]
    assert [role for role in ROLES if leads(role, "/topics/order.paid")] == [
        "viewer",
        "reader",
        "operator",
        "owner",
        "boss",
    ]
    assert not leads("owner", "/topics/mail.outgoing"), "what one may not see is not there"


async def test_names_that_one_may_not_see_are_nowhere(tmp_path: Path) -> None:
    async with secured(tmp_path) as console, console.browser("owner") as http:
        for path in ("/", "/topics", "/groups", "/search?q=mail", "/dead", "/half", "/cluster"):
            page = await http.get(path)
            assert "mail.outgoing" not in page.text.replace("mail.outgoing</code>", ""), path
        listed = (await http.get("/api/v1/topics")).json()["items"]
        figures = await http.get("/api/v1/cluster")

    assert {item["topic"] for item in listed} == {"order.paid", "order.shipped"}
    assert "mail.outgoing" not in figures.text


TRIED = {
    "pause-group": {"topic": "order.paid", "group": "billing"},
    "reset-group": {"topic": "order.paid", "group": "billing", "start": "earliest"},
    "retry-group": {"topic": "order.paid", "group": "billing"},
    "pause-topic": {"topic": "mail.outgoing"},
    "pause-consuming": {"topic": "order.shipped"},
    "resend-dead": {"group": "billing", "ids": "01M7FD0PJFVMSYZCK800000000"},
    "recall-dead": {"group": "billing", "topic": "order.paid"},
    "disconnect": {"session": "00"},
    "drain": {"broker_group": "main"},
}


async def test_what_is_offered_is_what_the_servers_take(tmp_path: Path) -> None:
    """The table of rights says of every action the same as the servers do: it is tried."""
    async with secured(tmp_path) as console:
        for role in ("viewer", "operator", "owner"):
            async with console.browser(role) as http:
                for action, arguments in TRIED.items():
                    offered = await http.get(f"/do/{action}", params=arguments)
                    taken = await _by_the_servers(console, role, action, arguments)
                    assert (role, action, offered.status_code == 403) == (role, action, not taken)


async def _by_the_servers(
    console: SecuredConsole, role: str, action: str, arguments: dict[str, str]
) -> bool:
    """Without the console: as that user, straight at the cluster."""
    from ternmq import connect
    from ternmq.core.errors import Forbidden, TernError, TopicNotFound
    from tests.integration.console.secured import PASSWORD

    async with connect(console.as_user(role), password=PASSWORD) as mq:
        try:
            await ACTIONS[action].run(mq, arguments)
        except (Forbidden, TopicNotFound):  # What one may not see is not there.
            return False
        except TernError:
            return True
        return True


def test_every_action_has_a_line_of_rights_or_belongs_to_who_began_it() -> None:
    assert set(ACTIONS) - set(ACTION_RIGHTS) == {"commit-half", "rollback-half"}
