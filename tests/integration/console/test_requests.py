"""Asking for a right at the console: kept, decided by who may grant, given as that person."""

from pathlib import Path

from tests.integration.console.secured import secured
from tests.waiting import until

WANTED = {"right": "read", "resource": "order.paid", "reason": "order 17 is missing"}


async def test_a_right_is_asked_for_approved_and_counts(tmp_path: Path) -> None:
    async with (
        secured(tmp_path) as console,
        console.browser("viewer") as viewer,
        console.browser("boss") as boss,
    ):
        asked = await viewer.post("/requests", data=WANTED)
        listed = await boss.get("/requests")
        place = listed.text.partition('action="/requests/')[2].partition('"')[0]
        own = await viewer.post(f"/requests/{place}", data={"verdict": "approved"})
        approved = await boss.post(f"/requests/{place}", data={"verdict": "approved"})
        again = await boss.post(f"/requests/{place}", data={"verdict": "refused"})

        async def reads() -> bool:
            return (await viewer.get("/topics/order.paid/messages")).status_code == 200

        await until(reads, "the right counts")
        async with console.browser("reader") as other:
            hidden = await other.get("/requests")
        audit = (tmp_path / "audit-meta.log").read_text(encoding="utf-8")

    assert "You asked for: allow read topic:order.paid" in asked.text
    assert "order 17 is missing" in listed.text
    assert own.status_code == 403
    assert approved.status_code == 200 and "approved: viewer" in approved.text
    assert again.status_code == 409 and "boss decided it already" in again.text
    assert "order 17 is missing" not in hidden.text
    assert '"who":"boss"' in audit.replace(": ", ":") and "GRANT_SET" in audit


async def test_what_is_wrong_is_not_asked_for(tmp_path: Path) -> None:
    async with secured(tmp_path, seeds=False) as console, console.browser("viewer") as http:
        for change in ({"right": "fly"}, {"resource": "moon:*"}, {"reason": ""}):
            answer = await http.post("/requests", data=WANTED | change)
            assert answer.status_code == 400, change
        for _ in range(20):
            assert (await http.post("/requests", data=WANTED)).status_code == 200
        full = await http.post("/requests", data=WANTED)

    assert full.status_code == 429
