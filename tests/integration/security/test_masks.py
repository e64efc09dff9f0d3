"""Masks on pages and in calls: hidden from who may read, shown to who may and asks."""

from pathlib import Path

from ternmq import connect
from tests.integration.console.secured import PASSWORD, secured
from tests.waiting import until

CARD = "4111-1111-1111-1111"
BODY = f'{{"card": "{CARD}", "sum": 5}}'.encode()


async def test_masked_parts_are_on_no_page_and_in_no_call_until_somebody_may(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path, seeds=False) as console:
        async with connect(console.as_user("boss"), password=PASSWORD, app="boss") as mq:
            await mq.admin.create_topic("order.paid")
            receipt = await mq.send("order.paid", BODY, key="k", properties={"ssn": CARD, "n": 1})
            later = await mq.send("order.paid", BODY, delay=3600)
            async with mq.consumer("order.paid", group="boss") as consumer:
                async for message in consumer:
                    await message.reject("no good")
                    break
            documents = mq.admin.documents
            await documents.put("mask", "card", b'{"topic": "order.*", "pointer": "/card"}')
            await documents.put("mask", "ssn", b'{"topic": "order.*", "property": "ssn"}')
        looks = [
            "/topics/order.paid/messages",
            f"/m/{receipt.id}?topic=order.paid",
            f"/m/{receipt.id}?topic=order.paid&show=hex",
            f"/m/{receipt.id}/raw?topic=order.paid",
            "/api/v1/topics/order.paid/messages",
            f"/api/v1/messages/{receipt.id}?topic=order.paid",
        ]
        everything = [
            *looks,
            "/search?q=k",
            f"/m/{later.id}",
            "/dead/boss",
            "/api/v1/dead/boss",
            "/api/v1/messages?key=k",
            f"/topics/order.paid/send?like={receipt.id}",
        ]
        async with console.browser("reader") as http:
            for path in looks:
                answer = await http.get(path)
                assert answer.status_code == 200, path
                assert CARD not in answer.text, path
                assert CARD.encode().hex() not in answer.text.replace(" ", ""), path
                refused = await http.get(path + ("&" if "?" in path else "?") + "unmask=1")
                assert refused.status_code == 403, path
                assert CARD not in refused.text
            for query in ("text=4111", "where=ssn%20%3D%20%274%27"):
                for path in ("/topics/order.paid/messages", "/api/v1/topics/order.paid/messages"):
                    assert (await http.get(f"{path}?{query}")).status_code == 403
        async with console.browser("boss") as http:
            for path in everything:
                hidden = await http.get(path)
                assert hidden.status_code == 200, path
                assert CARD not in hidden.text, path
            for path in (*looks[:2], *looks[3:], f"/m/{later.id}"):
                shown = await http.get(path + ("&" if "?" in path else "?") + "unmask=1")
                assert CARD in shown.text, path

            async with connect(console.as_user("boss"), password=PASSWORD, app="boss") as mq:
                await mq.admin.documents.delete("mask", "card")

                async def shows() -> bool:
                    return CARD in (await http.get(looks[0])).text

                await until(shows)
                await mq.admin.documents.put("mask", "bad", b"{}")

                async def hides_all() -> bool:
                    return "&#34;sum" not in (await http.get(looks[1])).text

                await until(hides_all)
