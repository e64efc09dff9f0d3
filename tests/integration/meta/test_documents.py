"""Documents of the registry through a real node: client, blocking client, command line, API, and
who may. Q10: a program that dies lets go of what it ran."""

import asyncio
import json

import httpx
import pytest

import ternmq
import ternmq.sync
import ternmq.testing
from ternmq.client.documents.documents import change_document, json_value
from ternmq.client.documents.leases import DocumentLease
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import making_site
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, DocumentNotFound, Forbidden, VersionMismatch
from tests.integration.processes import Node, NodeFactory, free_ports, tern
from tests.waiting import until


async def test_a_document_lives_its_life_in_the_client() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        documents = mq.admin.documents
        first = await documents.put("rule", "backlog", {"over": 10}, version=0)
        with pytest.raises(VersionMismatch) as mismatch:
            await documents.put("rule", "backlog", b"other", version=0)
        assert mismatch.value.details["version"] == first.version
        assert json_value(await documents.get("rule", "backlog")) == {"over": 10}
        changed = await change_document(documents, "rule", "backlog", lambda it: it | {"on": True})
        assert json_value(changed) == {"over": 10, "on": True}
        await documents.put("rule", "raw", b"\xff\x00")
        assert [(each.name, each.size) for each in await documents.list("rule")] == [
            ("backlog", len(changed.body)),
            ("raw", 2),
        ]
        with pytest.raises(BadRequest):
            json_value(await documents.get("rule", "raw"))
        with pytest.raises(BadRequest):
            await documents.put("rule", "odd", object())
        with pytest.raises(VersionMismatch):
            await documents.delete("rule", "backlog", version=first.version)
        await documents.delete("rule", "backlog", version=changed.version)
        assert await documents.find("rule", "backlog") is None
        with pytest.raises(DocumentNotFound):
            await documents.get("rule", "backlog")


async def test_lists_go_beyond_one_page() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        documents = mq.admin.documents
        await asyncio.gather(*(documents.put("n", f"{at:03}", b"") for at in range(25)))
        page = await documents.page("n", limit=10)
        assert (len(page.documents), page.following) == (10, "n/009")
        names = [each.name for each in await documents.list("n", after="n/009", limit=12)]
        assert names == [f"{at:03}" for at in range(10, 22)]


async def test_one_holds_a_lease_until_it_lets_go_or_dies() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        documents = mq.admin.documents
        one, two = (
            DocumentLease(documents, "runner", "jobs", holder=name, seconds=1.0)
            for name in ("one", "two")
        )
        assert await one.take() and one.held
        assert not await two.take() and not two.held
        assert await one.take(), "renewed"
        await one.let_go()
        assert not one.held
        assert await two.take()
        # Nobody renews it any more: as if the holder had been killed.
        await until(one.take, seconds=10)
        assert not two.held, "and who held it knew that before"
        assert not await two.take()


def test_the_blocking_client_and_the_command_line_have_documents(node: Node) -> None:
    with ternmq.sync.connect(node.url) as mq:
        put = mq.admin.documents.put("rule", "backlog", {"over": 10})
    shown = tern("document", "get", "rule", "backlog", "--json", url=node.url).json()
    assert (shown["version"], json.loads(shown["body"])) == (put.version, {"over": 10})
    knew = ("--version", str(put.version))
    other = tern("document", "put", "rule", "backlog", "{}", *knew, url=node.url)
    assert f"version {put.version + 1}" in other.out
    refused = tern("document", "put", "rule", "backlog", "1", *knew, url=node.url, code=1)
    assert "somebody else changed it" in refused.err
    tern("document", "put", "lease", "mine", "-", "--expires", "1h", url=node.url, stdin=b"x")
    [lease] = tern("document", "list", "lease", "--json", url=node.url).json()
    assert lease["expires_at"] and lease["size"] == 1
    assert tern("document", "get", "lease", "mine", url=node.url).out == "x\n"
    gone = tern("document", "delete", "lease", "mine", "--yes", url=node.url)
    assert "is deleted" in gone.out
    assert "may have expired" in tern("document", "get", "lease", "mine", url=node.url, code=1).err


async def test_etags_guard_documents_over_http() -> None:
    async with ternmq.testing.node() as url:
        config = ConsoleConfig(url=url, port=free_ports(1))
        async with making_site(config, SystemClock()) as site:
            transport = httpx.ASGITransport(site.app)
            async with httpx.AsyncClient(transport=transport, base_url=config.origin) as http:
                await check_http(http)


async def check_http(http: httpx.AsyncClient) -> None:
    at = "/api/v1/documents/rule/backlog"
    new = {"If-None-Match": "*"}
    assert (await http.get(at)).status_code == 404
    made = await http.put(at, json={"over": 1}, headers=new)
    assert made.status_code == 200, made.text
    tag = made.headers["etag"]
    assert (await http.put(at, json={"over": 2}, headers=new)).status_code == 412
    changed = await http.put(at, json={"over": 2}, headers={"If-Match": tag})
    assert changed.status_code == 200 and changed.headers["etag"] != tag
    late = await http.put(at, json={"over": 3}, headers={"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "version_mismatch")
    found = await http.get(at)
    assert found.json()["body"] == {"over": 2}
    assert found.headers["etag"] == changed.headers["etag"]
    assert (await http.put(at, content=b"{no json")).status_code == 400
    assert (await http.put(at, json=1, headers={"If-Match": "x"})).status_code == 400
    assert (await http.put(at, content=b" " * 300_000)).status_code == 413
    await http.put("/api/v1/documents/rule/other?expires_s=60", content=b"null")
    listed = (await http.get("/api/v1/documents/rule?limit=1")).json()
    assert [each["name"] for each in listed["items"]] == ["backlog"]
    rest = (await http.get("/api/v1/documents", params={"after": listed["next"]})).json()
    assert [each["name"] for each in rest["items"]] == ["other"]
    assert (await http.delete(at, headers={"If-Match": tag})).status_code == 412
    assert (await http.delete(at, headers={"If-Match": "*"})).status_code == 204
    assert (await http.delete(at)).status_code == 404


async def test_rights_are_given_by_kind(node_factory: NodeFactory) -> None:
    secured = await asyncio.to_thread(node_factory, environment={"TERN_SECURITY": "true"})
    password = (secured.data_dir / "admin-password").read_text(encoding="ascii").strip()
    url = secured.url.replace("tern://", "tern://{}@")
    async with ternmq.connect(url.format("admin"), password=password) as mq:
        await mq.admin.add_user("ann", "canary-of-ann", iterations=4096)
        await mq.admin.grant("ann", "read", "document:rule")
        await mq.admin.grant("ann", "manage", "document:note.*")
    async with ternmq.connect(url.format("ann"), password="canary-of-ann") as mq:
        documents = mq.admin.documents
        await documents.put("note.mine", "a", b"1")
        assert await documents.list("rule") == []
        for refused in (
            lambda: documents.put("rule", "a", b"1"),
            lambda: documents.delete("rule", "a"),
            lambda: documents.get("note.mine", "a"),
            lambda: documents.list(""),
        ):
            with pytest.raises(Forbidden):
                await refused()
