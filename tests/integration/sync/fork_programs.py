"""Programs that fork with a connected client, run by `test_fork.py` as processes of their own.

    python -m tests.integration.sync.fork_programs HOW URL

Each prints one JSON line per process: who it is, the ids of what it sent, and which of the sockets
to the node it has open. What is shared with another process would show in both.
"""

import asyncio
import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import ternmq
import ternmq.sync

TOPIC = "forked"
MESSAGES = 20
CHILDREN = 3


def sockets() -> list[str]:
    """The TCP sockets this process has open, by their kernel numbers."""
    tcp = {line.split()[9] for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]}
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # The one that lists the directory.
        number = target.removeprefix("socket:[").removesuffix("]")
        if number in tcp:
            found.append(number)
    return found


def tell(who: str, ids: list[str]) -> None:
    line = json.dumps({"who": who, "ids": ids, "sockets": sockets()}) + "\n"
    os.write(1, line.encode())  # One write: lines of several processes do not mix.


def wait_for(children: list[int]) -> None:
    for pid in children:
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"a child ended with {status}"


def blocking(url: str) -> None:
    """The blocking client, as under a pre-forking server that connects before it forks."""
    mq = ternmq.sync.connect(url, app="forking")
    ids = [mq.send(TOPIC, b"parent").id]
    children = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            body = f"child {number}".encode()
            tell(f"child {number}", [mq.send(TOPIC, body).id for _ in range(MESSAGES)])
            mq.close()
            os._exit(0)
        children.append(pid)
    ids += [mq.send(TOPIC, b"parent").id for _ in range(MESSAGES)]
    wait_for(children)
    ids += [mq.send(TOPIC, b"parent").id for _ in range(MESSAGES)]
    tell("parent", ids)
    mq.close()


def coroutines(url: str) -> None:
    """The asyncio client: parent and children each go on with a loop of their own."""
    loop = asyncio.new_event_loop()
    mq = ternmq.connect(url, app="forking")

    async def send(body: bytes, count: int) -> list[str]:
        return [(await mq.send(TOPIC, body)).id for _ in range(count)]

    async def begin() -> list[str]:
        await mq
        return await send(b"parent", 1)

    ids = loop.run_until_complete(begin())
    children = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid == 0:

            async def work(body: bytes) -> None:
                sent = await send(body, MESSAGES)
                tell(body.decode(), sent)
                await mq.close()

            asyncio.run(work(f"child {number}".encode()))
            os._exit(0)
        children.append(pid)
    ids += loop.run_until_complete(send(b"parent", MESSAGES))
    wait_for(children)
    ids += loop.run_until_complete(send(b"parent", MESSAGES))
    tell("parent", ids)
    loop.run_until_complete(mq.close())
    loop.close()


shared: Any = None


def pool_job(number: int) -> tuple[int, str]:
    return os.getpid(), str(shared.send(TOPIC, f"job {number}".encode()).id)


def pool(url: str) -> None:
    """multiprocessing's fork pool, with a client in a global."""
    global shared
    shared = ternmq.sync.connect(url, app="forking")
    ids = [shared.send(TOPIC, b"parent").id]
    with multiprocessing.get_context("fork").Pool(CHILDREN) as workers:
        jobs = workers.map(pool_job, range(CHILDREN * MESSAGES), chunksize=5)
        workers.close()
        workers.join()
    for worker in {pid for pid, _ in jobs}:
        line = {"who": str(worker), "ids": [i for pid, i in jobs if pid == worker], "sockets": []}
        os.write(1, (json.dumps(line) + "\n").encode())
    ids += [shared.send(TOPIC, b"parent").id for _ in range(MESSAGES)]
    tell("parent", ids)
    shared.close()


def consumers(url: str) -> None:
    """A consumer stays with the parent; a child that touches it is told so and makes its own."""
    mq = ternmq.sync.connect(url, app="forking")
    mq.send_many(TOPIC, [b"%d" % number for number in range(10)])
    with mq.consumer(TOPIC, group="parent") as consumer:
        first = next(iter(consumer))
        pid = os.fork()
        if pid == 0:
            try:
                next(iter(consumer))
            except ternmq.Closed:
                with mq.consumer(TOPIC, group="child") as own:
                    got = next(iter(own))
                    got.ack()
                    tell("child", [got.id])
                mq.close()
                os._exit(0)
            os._exit(1)
        wait_for([pid])
        first.ack()
        consumer.flush()
        second = next(iter(consumer))
        second.ack()
        tell("parent", [first.id, second.id])
    mq.close()


if __name__ == "__main__":
    {"blocking": blocking, "coroutines": coroutines, "pool": pool, "consumers": consumers}[
        sys.argv[1]
    ](sys.argv[2])
