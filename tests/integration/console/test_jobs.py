"""Q10, R23: jobs outlive who began them; nothing is sent twice; counts are exact.

The console of the crash is a real process, killed with SIGKILL in the middle of its work.
"""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

import ternmq
import ternmq.testing
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import serving_console
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, DocumentNotFound
from ternmq.jobs import runner
from ternmq.jobs.job import KeptJob
from ternmq.jobs.job_admin import JobAdmin
from ternmq.jobs.runner import JobRunner
from tests.integration.processes import Node, free_ports, tern
from tests.waiting import until


async def kill_letters(mq: ternmq.Client, count: int, group: str = "billing") -> None:
    """So many open dead letters of a group on the topic `pay`."""
    bodies = [b"%d" % number for number in range(count)]
    await mq.send_many("pay", bodies)
    async with mq.consumer("pay", group=group, start="earliest") as messages:
        for _ in range(count):
            (await anext(messages)).reject("no bank")

    async def dead() -> bool:
        found = await mq.admin.dead_groups()
        return sum(each.open for each in found if each.group == group) == count

    await until(dead, seconds=30)


async def consumed(mq: ternmq.Client, count: int, group: str = "billing") -> Counter[bytes]:
    """What the group is handed, until nothing comes any more."""
    seen: Counter[bytes] = Counter()
    async with mq.consumer("pay", group=group) as messages:
        while sum(seen.values()) < count:
            async with asyncio.timeout(20):
                message = await anext(messages)
            seen[message.body] += 1
            await message.ack()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await anext(messages)
    return seen


@contextmanager
def console_process(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    port = free_ports(1)
    command = [sys.executable, "-m", "ternmq.cli.main", "console"]
    process = subprocess.Popen(
        [*command, "--url", url, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def ended(desk: JobAdmin, id: str, seconds: float = 60) -> KeptJob:
    async def over() -> bool:
        return (await desk.show(id)).over

    await until(over, seconds=seconds)
    return await desk.show(id)


async def test_a_console_killed_in_the_middle_of_a_resend_loses_and_repeats_nothing(
    node: Node,
) -> None:
    count = 150
    async with ternmq.connect(node.url) as mq:
        await kill_letters(mq, count)
        desk = JobAdmin(mq)
        job = await desk.order("resend", {"group": "billing", "rate": "40"}, reason="bank is back")

        async def halfway() -> bool:
            return (await desk.show(job.id)).handled >= 40

        with console_process(node.url) as first:
            await until(halfway, seconds=60)
            first.send_signal(signal.SIGKILL)
            first.wait()
        left = await desk.show(job.id)
        assert left.state == "running" and left.handled < count
        with console_process(node.url):
            done = await ended(desk, job.id, 90)
        assert (done.state, done.total) == ("done", count)
        assert done.counts == {"sent again": count}
        assert done.runner != left.runner
        seen = await consumed(mq, count)
        assert seen == Counter({b"%d" % number: 1 for number in range(count)})
        assert await mq.admin.open_dead_letters("billing") == []


async def test_two_resends_of_the_same_letters_send_each_once() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 60)
        desk = JobAdmin(mq)
        jobs = [await desk.order("resend", {"group": "billing", "rate": 100}) for _ in range(2)]
        await asyncio.gather(*(JobRunner(mq, SystemClock()).run_until_done(job.id) for job in jobs))
        found = [await desk.show(job.id) for job in jobs]
        assert [job.state for job in found] == ["done", "done"]
        assert sum(job.counts.get("sent again", 0) for job in found) == 60
        assert all(job.handled == job.total for job in found)
        assert await consumed(mq, 60) == Counter({b"%d" % number: 1 for number in range(60)})


async def test_one_runner_has_a_job_and_another_goes_on_after_its_lease() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 40)
        desk = JobAdmin(mq)
        job = await desk.order("resend", {"group": "billing", "rate": 20})
        first = JobRunner(mq, SystemClock(), lease_s=2.0)
        second = JobRunner(mq, SystemClock(), lease_s=2.0)
        running = asyncio.create_task(first.run())

        async def some() -> bool:
            return (await desk.show(job.id)).handled >= 10

        await until(some, seconds=20)
        await second.look()
        assert (await desk.show(job.id)).runner == first.name, "the lease is taken"
        running.cancel()  # It lets go, as a console does that is stopped.
        await asyncio.gather(running, return_exceptions=True)
        await second.run_until_done(job.id)
        done = await desk.show(job.id)
        assert (done.state, done.counts, done.runner) == ("done", {"sent again": 40}, second.name)


async def test_a_job_that_is_stopped_before_it_begins_does_nothing() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 5)
        desk = JobAdmin(mq)
        job = await desk.order("resend", {"group": "billing"}, wait_s=3600)
        await desk.stop(job.id)
        await JobRunner(mq, SystemClock()).run_until_done(job.id)
        done = await desk.show(job.id)
        assert (done.state, done.result) == ("stopped", "stopped by a person: nothing was done")
        assert await mq.admin.open_dead_letters("billing") == [(0, 5)]


async def test_a_job_stops_in_the_middle_and_takes_back_what_nobody_was_handed() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 50)
        desk = JobAdmin(mq)
        job = await desk.order("resend", {"group": "billing", "rate": 20})
        running = asyncio.create_task(JobRunner(mq, SystemClock()).run_until_done(job.id))

        async def some() -> bool:
            return (await desk.show(job.id)).handled >= 10

        await until(some, seconds=20)
        with pytest.raises(BadRequest):
            await desk.recall(job.id)
        await desk.stop(job.id)
        await running
        done = await desk.show(job.id)
        assert done.state == "stopped" and 10 <= done.handled < 50
        assert await desk.recall(job.id) == done.counts["sent again"]

        async def all_open() -> bool:
            found = await mq.admin.dead_groups()
            return sum(each.open for each in found) == 50

        await until(all_open, seconds=20)


async def test_the_canary_and_the_stop_rule_keep_most_letters_where_they_are() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 80)
        desk = JobAdmin(mq)
        fails = asyncio.Event()

        async def consume() -> None:
            async with mq.consumer("pay", group="billing") as messages:
                async for message in messages:
                    if fails.is_set():
                        message.reject("still no bank")
                    else:
                        await message.ack()

        consuming = asyncio.create_task(consume())
        fails.set()
        canary = await desk.order("resend", {"group": "billing", "canary": 10, "rate": 100})
        await JobRunner(mq, SystemClock()).run_until_done(canary.id)
        judged = await desk.show(canary.id)
        assert (judged.state, judged.handled) == ("stopped", 10)
        assert "canary failed: 10 of 10" in judged.result
        rule = await desk.order("resend", {"group": "billing", "stop_percent": 20, "rate": 30})
        await JobRunner(mq, SystemClock()).run_until_done(rule.id)
        ruled = await desk.show(rule.id)
        assert ruled.state == "stopped" and 20 <= ruled.handled < 80
        fails.clear()
        good = await desk.order("resend", {"group": "billing", "canary": 5, "rate": 200})
        await JobRunner(mq, SystemClock()).run_until_done(good.id)
        assert (await desk.show(good.id)).state == "done"
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


async def test_replays_and_changes_of_delayed_messages_are_jobs_too() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await mq.send_many("pay", [b"%d" % number for number in range(30)])
        await mq.admin.create_group("pay", "audit", start="latest")
        for number in range(25):
            await mq.send("later", b"%d" % number, delay=3600)
        desk = JobAdmin(mq)
        replay = await desk.order("replay", {"topic": "pay", "into": "audit"})
        cancel = await desk.order("delayed", {"action": "cancel", "topic": "later"})
        await JobRunner(mq, SystemClock()).run_until_done()
        replayed, cancelled = await desk.show(replay.id), await desk.show(cancel.id)
        assert (replayed.state, replayed.counts) == ("done", {"copied": 30}), replayed
        assert (cancelled.state, cancelled.counts) == ("done", {"cancelled": 25}), cancelled


async def test_jobs_over_http_and_on_their_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "IDLE_EVERY_S", 0.2)
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await kill_letters(mq, 20)
        config = ConsoleConfig(url=url, port=free_ports(1))
        async with (
            serving_console(config, SystemClock()) as origin,
            httpx.AsyncClient(base_url=origin, timeout=30) as http,
        ):
            wrong = await http.post("/api/v1/jobs", json={"work": "dance"})
            assert wrong.status_code == 400
            body = {"work": "resend", "arguments": {"group": "billing"}, "reason": "bank is back"}
            ordered = await http.post("/api/v1/jobs", json=body)
            assert ordered.status_code == 202
            at = ordered.headers["location"]

            async def done() -> bool:
                return bool((await http.get(at)).json()["state"] == "done")

            await until(done, seconds=20)
            shown = (await http.get(at)).json()
            assert (shown["counts"], shown["share"]) == ({"sent again": 20}, 1.0)
            [listed] = (await http.get("/api/v1/jobs")).json()["items"]
            assert listed["id"] == shown["id"]
            pages = [await http.get("/jobs"), await http.get(f"/jobs/{shown['id']}")]
            assert all(shown["id"] in page.text and page.status_code == 200 for page in pages)
            assert "Take back" in pages[1].text
            preview = await http.get("/do/resend-job", params={"group": "billing", "canary": "5"})
            assert "0 letters would be sent again" in preview.text
            assert (await http.get("/api/v1/jobs/no-such")).status_code == 404
            assert (await http.get("/jobs/no-such")).status_code == 404


def test_the_command_line_orders_runs_and_shows_jobs(node: Node) -> None:
    async def prepare() -> None:
        async with ternmq.connect(node.url) as mq:
            await kill_letters(mq, 10)

    asyncio.run(prepare())
    ordered = tern("jobs", "start", "resend", "group=billing", "--json", url=node.url).json()
    assert ordered["state"] == "waiting"
    [done] = tern("jobs", "run", ordered["id"], "--json", url=node.url).json()
    assert (done["state"], done["counts"]) == ("done", {"sent again": 10})
    assert "10 sent again" in tern("jobs", "show", ordered["id"], url=node.url).out
    assert ordered["id"] in tern("jobs", "list", url=node.url).out
    assert tern("jobs", "stop", ordered["id"], url=node.url).code == 0
    recalled = tern("jobs", "recall", ordered["id"], "--json", url=node.url).json()
    assert recalled == {"taken": 10}
    assert "no job" in tern("jobs", "show", "resend-1", url=node.url, code=1).err
    assert "needs group" in tern("jobs", "start", "resend", url=node.url, code=2).err


async def test_a_job_that_is_not_there_is_named() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        with pytest.raises(DocumentNotFound, match="tern jobs list"):
            await JobAdmin(mq).show("nothing")
