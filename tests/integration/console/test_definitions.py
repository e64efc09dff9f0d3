"""Topics, groups, limits and documents as one file: out of one cluster, into another, and again."""

from pathlib import Path

import httpx
import pytest

import ternmq
import ternmq.testing
from ternmq.api.definitions import (
    export_definitions,
    import_definitions,
    plan_import,
    read_definitions,
)
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import making_site
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.wire.messages.topics import TopicSettings
from tests.integration.processes import Node, free_ports, tern


async def define(mq: ternmq.Client) -> None:
    await mq.admin.create_topic("order.paid", TopicSettings(rate=100, closed=True, apps=["shop"]))
    await mq.admin.create_topic("plain")
    await mq.admin.create_group("order.paid", "billing")
    await mq.admin.set_group("order.paid", "billing", attempts_max=5, backlog_alarm=1000)
    await mq.admin.create_group("plain", "audit")
    await mq.admin.set_limit("shop", rate=50)
    await mq.admin.documents.put("rule", "backlog", {"over": 10})
    await mq.admin.documents.put("lease", "mine", b"x", expires=60)
    await mq.admin.documents.put("job", "resend-1", b"{}")


async def test_what_one_cluster_has_the_other_gets_and_nothing_is_done_twice() -> None:
    async with (
        ternmq.testing.node() as url,
        ternmq.testing.node() as other_url,
        ternmq.connect(url) as mq,
        ternmq.connect(other_url) as other,
    ):
        await define(mq)
        exported = await export_definitions(mq)
        assert [topic.name for topic in exported.topics] == ["order.paid", "plain"]
        assert exported.topics[0].settings == {"apps": ["shop"], "closed": True, "rate": 100}
        assert exported.topics[1].settings == {}
        assert [(each.kind, each.name) for each in exported.documents] == [("rule", "backlog")]
        await other.admin.create_topic("plain", TopicSettings(paused=True))
        await other.admin.create_topic("of.others")
        planned = await plan_import(other, exported)
        assert {(each.verb, each.kind, each.name) for each in planned} == {
            ("make", "topic", "order.paid"),
            ("change", "topic", "plain"),
            ("make", "group", "order.paid/billing"),
            ("make", "group", "plain/audit"),
            ("change", "limit", "shop"),
            ("make", "document", "rule/backlog"),
        }
        assert not (await other.admin.limits()), "a plan changes nothing"
        assert await import_definitions(other, exported) == planned
        assert await plan_import(other, exported) == [], "the second time there is nothing to do"
        there = await export_definitions(other)
        names = [topic.name for topic in there.topics]
        assert names == ["of.others", "order.paid", "plain"], "what it does not name stays"
        assert [each for each in there.topics if each.name != "of.others"] == exported.topics
        assert (there.groups, there.limits) == (exported.groups, exported.limits)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format": "something", "version": 1}',
        b'{"format": "ternmq-definitions", "version": 2}',
        b'{"topics": [{"name": "a b"}]}',
        b'{"topics": [{"name": "a", "settings": {"placement": 1}}]}',
        b'{"groups": [{"topic": "%dead.x", "name": "g"}]}',
        b'{"unknown": 1}',
    ],
)
def test_a_file_that_is_not_ours_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        read_definitions(data)


def test_a_file_that_is_too_large_is_not_even_read() -> None:
    with pytest.raises(TooLarge):
        read_definitions(bytes(64 * 1024 * 1024 + 1))


async def test_definitions_over_http() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await define(mq)
        config = ConsoleConfig(url=url, port=free_ports(1))
        async with making_site(config, SystemClock()) as site:
            transport = httpx.ASGITransport(site.app)
            async with httpx.AsyncClient(transport=transport, base_url=config.origin) as http:
                file = (await http.get("/api/v1/definitions")).json()
                await mq.admin.set_topic("plain", rate=7)
                at = "/api/v1/definitions"
                planned = (await http.post(f"{at}?dry_run=true", json=file)).json()
                [change] = planned["changes"]
                assert (change["verb"], change["name"], change["settings"]) == (
                    "change",
                    "plain",
                    {"rate": 0},
                )
                assert (await mq.admin.topic("plain")).settings.rate == 7
                assert (await http.post(at, json=file)).json()["changes"] == planned["changes"]
                assert (await mq.admin.topic("plain")).settings.rate == 0
                assert (await http.post(at, content=b"{")).status_code == 400


def test_definitions_on_the_command_line(node: Node, tmp_path: Path) -> None:
    tern("topic", "create", "order.paid", url=node.url)
    tern("group", "create", "order.paid", "billing", url=node.url)
    file = tmp_path / "defined.json"
    exported = tern("definitions", "export", str(file), url=node.url)
    assert "1 topics, 1 groups" in exported.err
    assert "cannot write" in tern("definitions", "export", str(file), url=node.url, code=2).err
    tern("topic", "delete", "order.paid", "--yes", url=node.url)
    planned = tern("definitions", "import", str(file), "--dry-run", "--json", url=node.url).json()
    assert [each["kind"] for each in planned["changes"]] == ["topic", "group"]
    tern("definitions", "import", str(file), "--yes", url=node.url)
    assert "billing" in tern("group", "list", "order.paid", url=node.url).out
    again = tern("definitions", "import", str(file), "--json", url=node.url).json()
    assert again["changes"] == []
