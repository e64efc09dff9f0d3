"""Every page over a seeded node, without a browser: links, forms, hostile names, actions."""

from collections import deque
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx

from ternmq import connect
from ternmq.console.render import FOLDER
from tests.integration.console.conftest import SeededConsole
from tests.integration.console.seeded import CHINESE, CONTROL, HOSTILE
from tests.waiting import until

PAGES_MAX = 250
ENDLESS = ("/live", "/api/v1/watch")


class Links(HTMLParser):
    """Where a page leads: links, what it loads, and forms that only ask."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts_inside = 0
        self._form: str | None = None
        self._fields: list[tuple[str, str]] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert "style" not in given, "the policy forbids styles inside a page"
        assert not [name for name in given if name.startswith("on")]
        if tag == "script":
            assert given.get("src", "").startswith("/static/"), "no script is written into a page"
        if tag in ("a", "link", "script", "img"):
            target = given.get("href") or given.get("src")
            self.found += [target] if target else []
        if tag == "form":
            asks = given.get("method", "get") == "get"
            self._form, self._fields = (given.get("action", "") if asks else None), []
        if tag == "input" and self._form is not None and given.get("name"):
            self._fields.append((given["name"], given.get("value", "")))
        if tag == "select":
            self._select = given.get("name", "")
        if tag == "option" and "value" in given:
            self._choose(given["value"])

    def handle_data(self, data: str) -> None:
        if data.strip():
            self._choose(data.strip())

    def _choose(self, value: str) -> None:
        """The first option of a list."""
        if self._select and self._form is not None:
            self._fields.append((self._select, value))
        self._select = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._form is not None:
            fields = dict(self._fields)
            for name, value in (("start", "earliest"), ("at", "2030-01-01T00:00Z")):
                fields[name] = fields.get(name) or value if name in fields else ""
            query = str(httpx.QueryParams({k: v for k, v in fields.items() if v}))
            self.found.append(f"{self._form}?{query}" if query else self._form)
            self._form = None


async def test_a_crawler_finds_no_dead_link_and_no_failure(console: SeededConsole) -> None:
    """Every link and every asking form of every page, from the first one on (J13)."""
    waiting, seen = deque(["/"]), {"/"}
    asked = 0
    shapes: dict[str, int] = {}
    while waiting and asked < PAGES_MAX:
        path = waiting.popleft()
        answer = await console.http.get(path)
        asked += 1
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        links = Links()
        links.feed(answer.text)
        for link in links.found:
            target = urldefrag(urljoin(path, link)).url
            shape = shape_of(target)
            new = target not in seen and shapes.get(shape, 0) < 6
            if target.startswith("/") and not target.startswith(ENDLESS) and new:
                shapes[shape] = shapes.get(shape, 0) + 1
                seen.add(target)
                waiting.append(target)
    assert asked > 60
    for page in (
        "/m/",
        "/dead/billing",
        "/delayed",
        "/half",
        "/clients",
        "/cluster",
        "/do/reset-group",
    ):
        assert any(path.startswith(page) for path in seen), f"nothing leads to {page}"


def shape_of(url: str) -> str:
    """Pages that differ in ids and numbers only are tried a few times."""
    parts = urlsplit(url)
    path = "/m/ID" if parts.path.startswith("/m/") else parts.path
    return path + "?" + ",".join(sorted(httpx.QueryParams(parts.query)))


async def test_names_and_bodies_of_others_are_shown_and_never_run(console: SeededConsole) -> None:
    listed = await console.http.get("/topics/order.paid/messages?order=oldest")

    assert HOSTILE not in listed.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in listed.text
    assert CHINESE in listed.text
    assert "\x1b" not in listed.text and "\x00" not in listed.text
    for at in range(8):
        page = await console.http.get(f"/m/{console.ids[f'body-{at}']}")
        assert page.status_code == 200
        assert HOSTILE not in page.text
        assert not set(page.text) & set(CONTROL) & {"\x00", "\x1b", "\x7f"}
    assert "&#34;order&#34;: 18" in (await console.http.get(f"/m/{console.ids['body-4']}")).text


async def test_a_body_of_4_mb_is_cut_on_its_page_and_whole_as_a_file(
    console: SeededConsole,
) -> None:
    page = await console.http.get(f"/m/{console.ids['large']}")
    raw = await console.http.get(f"/m/{console.ids['large']}/raw")

    assert "only the beginning is shown" in page.text
    assert len(page.content) < 100_000
    assert len(raw.content) > 4_000_000
    assert raw.headers["content-disposition"].startswith("attachment")


async def test_messages_are_found_by_filter_key_tag_and_text(console: SeededConsole) -> None:
    wanted = [("where=amount=7", 41), ("key=o-5", 1), ("tag=vip", 4), ("text=%22order%22: 17,", 1)]
    for query, count in wanted:
        page = await console.http.get(f"/topics/order.paid/messages?limit=200&{query}")

        assert (query, page.text.count('data-label="Sequence"')) == (query, count)


async def test_pages_of_messages_follow_each_other_without_gaps(console: SeededConsole) -> None:
    seen: list[int] = []
    after = ""
    while True:
        answer = await console.http.get(
            "/api/v1/topics/order.paid/messages",
            params={"limit": 300, "order": "newest", "after": after},
        )
        found = answer.json()
        seen += [item["sequence"] for item in found["items"]]
        after = found["next"]
        if not after:
            break

    assert seen == list(reversed(range(2_008)))


async def test_an_action_previews_then_wants_its_name_then_acts(console: SeededConsole) -> None:
    of = {"topic": "order.paid", "group": "billing", "start": "earliest"}
    preview = await console.http.get("/do/reset-group", params=of)
    untyped = await console.http.post("/do/reset-group", data=of)
    async with connect(console.url) as mq:
        before = (await mq.admin.groups("order.paid", "billing"))[0].ledger
        done = await console.http.post("/do/reset-group", data=of | {"typed": "billing"})
        after = (await mq.admin.groups("order.paid", "billing"))[0].ledger

    assert "Nothing has happened yet" in preview.text
    assert untyped.status_code == 400 and "nothing was done" in untyped.text
    assert before.acked == 380
    assert done.status_code == 200 and "400 messages come (again)" in done.text
    assert after.ready == 2_008


async def test_dead_letters_are_grouped_by_what_went_wrong_and_sent_again_once(
    console: SeededConsole,
) -> None:
    page = await console.http.get("/dead/billing")
    ids = [one["id"] for one in (await console.http.get("/api/v1/dead/billing")).json()["items"]]
    form = {"group": "billing", "ids": " ".join(ids[:3])}
    first = await console.http.post("/do/resend-dead", data=form)
    again = await console.http.post("/do/resend-dead", data=form)

    assert page.text.count("ValueError: order … has no amount") >= 1
    assert "in failing" in page.text
    assert "3 of 3 sent again, 0 not" in first.text
    assert "0 of 3 sent again, 3 not" in again.text
    assert (await console.http.get("/api/v1/dead/billing")).json()["open"] == 17


async def test_delayed_messages_are_cancelled_and_moved(console: SeededConsole) -> None:
    rows = (await console.http.get("/api/v1/delayed?topic=mail.outgoing")).json()["items"]
    first, second = rows[0]["id"], rows[1]["id"]
    cancelled = await console.http.post("/do/cancel-delayed", data={"ids": first})
    moved = await console.http.post(
        "/do/move-delayed", data={"ids": second, "at": "2027-01-01T00:00Z"}
    )
    left = (await console.http.get("/api/v1/delayed?topic=mail.outgoing")).json()["items"]

    assert "1 cancelled" in cancelled.text
    assert "1 rescheduled" in moved.text
    assert len(rows) == 40 and len(left) == 39
    assert {row["id"]: row["due_at"] for row in left}[second] == "2027-01-01T00:00:00.000Z"


async def test_letters_that_were_sent_again_are_taken_back(console: SeededConsole) -> None:
    ids = [one["id"] for one in (await console.http.get("/api/v1/dead/billing")).json()["items"]]
    await console.http.post("/do/resend-dead", data={"group": "billing", "ids": " ".join(ids[:4])})
    of = {"group": "billing", "topic": "order.paid"}
    taken = await console.http.post("/do/recall-dead", data=of)

    assert "4 letters are open again" in taken.text
    assert (await console.http.get("/api/v1/dead/billing")).json()["open"] == 20


async def test_a_message_for_later_is_shown_with_its_body(console: SeededConsole) -> None:
    rows = (await console.http.get("/api/v1/delayed?topic=mail.outgoing")).json()["items"]
    page = await console.http.get(f"/m/{rows[0]['id']}")

    assert "It waits for its time" in page.text
    assert "remember" in page.text


async def test_clients_are_listed_and_one_is_hung_up_on(console: SeededConsole) -> None:
    async with connect(console.url, app="reporting") as mq:
        await mq.send("order.paid", b"one more")
        page = await console.http.get("/clients?q=reporting")
        items = (await console.http.get("/api/v1/clients?app=reporting")).json()["items"]
        session = items[0]["session"]
        ended = await console.http.post("/do/disconnect", data={"session": session})

        assert "reporting" in page.text
        assert "1 connections were ended" in ended.text
        await mq.send("order.paid", b"it came back")


async def test_a_pause_shows_on_the_pages(console: SeededConsole) -> None:
    of = {"topic": "order.paid", "group": "analytics"}
    await console.http.post("/do/pause-group", data=of)

    async def shown() -> bool:
        page = await console.http.get("/")
        return "group analytics of order.paid is paused while 2,008 messages wait" in page.text

    await until(shown, "the overview says that the group is paused")


MISTAKES = [
    ("/topics/no.such", 404, "no topic"),
    ("/topics/order.paid/groups/nobody", 404, "has no group"),
    ("/topics/order.paid/messages?where=amount+%3E", 400, "code: bad_filter"),
    ("/topics/order.paid/messages?after=%FFnonsense", 400, "not a cursor"),
    ("/topics/order.paid/messages?from=yesterday", 400, "not a place to start"),
    ("/topics?sort=colour", 400, "it can be name"),
    ("/m/01M7FD0PJFVMSYZCK800000000", 404, "nobody has a message"),
    ("/m/not-an-id", 400, "not a message id"),
    ("/do/launch-missiles", 400, "there is no action"),
    ("/do/reset-group?topic=order.paid", 400, "needs group"),
    ("/dead/%25secret", 400, "cannot be the name"),
    ("/nowhere", 404, "Not Found"),
]


async def test_a_mistake_is_a_page_that_says_what_to_do(console: SeededConsole) -> None:
    for path, status, words in MISTAKES:
        answer = await console.http.get(path)

        assert (path, answer.status_code) == (path, status)
        assert words in answer.text
        assert "Traceback" not in answer.text


OTHER_SITES = [
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:7780"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
]


async def test_what_another_site_sends_is_refused(console: SeededConsole) -> None:
    form = {"topic": "order.paid"}
    for headers in OTHER_SITES:
        page = await console.http.post("/do/pause-topic", data=form, headers=headers)
        call = await console.http.post("/api/v1/actions/pause-topic", json=form, headers=headers)

        assert page.status_code == call.status_code == 403, headers
    async with connect(console.url) as mq:
        assert not (await mq.admin.topic("order.paid")).settings.paused


async def test_every_answer_forbids_what_comes_from_elsewhere(console: SeededConsole) -> None:
    for path in ("/", "/static/console.js", "/api/v1/topics", "/nowhere"):
        answer = await console.http.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_first_page_is_small(console: SeededConsole) -> None:
    """At most 60 KB compressed and 8 requests, as research says."""
    page = await console.http.get("/")
    links = Links()
    links.feed(page.text)
    loaded = [link for link in links.found if link.startswith("/static/")]
    answers = [page, *[await console.http.get(link) for link in dict.fromkeys(loaded)]]
    sizes = [answer.num_bytes_downloaded for answer in answers]

    assert len(sizes) + 1 <= 8
    assert sum(sizes) <= 60_000


def test_the_script_stays_small() -> None:
    """At most 600 lines of JavaScript in all, none of it made by a build."""
    scripts = sorted((FOLDER / "static").glob("**/*.js"))

    assert [script.name for script in scripts] == ["console.js"]
    assert sum(script.read_text(encoding="utf-8").count("\n") for script in scripts) <= 600
