"""A whole cluster under load and faults for as long as is wanted: `make soak MINUTES=60`.

Starts `tern cluster --restart` (a meta server, a broker group of three, a delay server of three),
two producers and two consumers. Every now and then a server or a consumer is killed or
stopped for a moment; the next fault waits until all members are in step again. At the end every
acknowledged message is looked for, and memory, descriptors and threads of the servers must be flat.
Prints a line a minute and a table; the exit code is 1 where anything was wrong.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import ternmq
from tests.integration.processes import Cluster, NodeFactory, clean_environment
from tests.soak.diaries import Diaries, dead_letters, unsettled
from tests.soak.resources import Growth, Sample, children, growth, look
from tests.waiting import until

SAMPLE_S = 5.0
QUIET_S = (8.0, 25.0)
"""Between two faults, once everything is whole again."""
WHOLE_S = 180.0
SETTLED_S = 300.0
CLIENTS = ("produce-1", "produce-2", "consume-1", "consume-2")


class Soak:
    """One run."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int) -> None:
        self._cluster = cluster
        self._folder = folder
        self._random = random.Random(seed)
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self.samples: dict[tuple[str, int], list[Sample]] = {}
        self.faults: list[str] = []
        self.wrong: list[str] = []

    # Clients.

    def start_client(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.soak.clients", name.partition("-")[0]]
        with (self._folder / f"{name}.err").open("ab") as err:
            self._clients[name] = subprocess.Popen(
                [*command, self._cluster.url, str(self._folder / f"{name}.log"), name],
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                env=clean_environment(),
                cwd=Path(__file__).parents[2],
            )

    def look_at_clients(self) -> None:
        for name, process in self._clients.items():
            if process.poll() is not None:
                said = (self._folder / f"{name}.err").read_text(errors="replace")[-2000:]
                self.wrong.append(f"{name} ended with {process.returncode}:\n{said}")
                self.start_client(name)

    def end_clients(self, kind: str) -> None:
        ending = [each for name, each in self._clients.items() if name.startswith(kind)]
        for process in ending:
            process.send_signal(signal.SIGTERM)
        for name, process in list(self._clients.items()):
            if process in ending:
                code = process.wait(SETTLED_S)
                if code:
                    self.wrong.append(f"{name} ended with {code}")
                del self._clients[name]

    def kill_clients(self) -> None:
        for process in self._clients.values():
            process.kill()
            process.wait()

    # Servers.

    def servers(self) -> dict[int, str]:
        """The cluster's processes, by the folder they keep their data in."""
        return {
            pid: Path(command.split("--data-dir ")[1].split()[0]).name
            for pid, command in children(self._cluster.pid).items()
            if "--data-dir " in command
        }

    def sample(self) -> None:
        for pid, name in self.servers().items():
            seen = look(pid)
            if seen is not None:
                self.samples.setdefault((name, pid), []).append(seen)

    async def whole(self, mq: ternmq.Client) -> bool:
        """Are all members of all broker groups and delay servers in step?"""
        with suppress(ternmq.TernError):
            states = [*await mq.admin.brokers(), *await mq.admin.brokers(kind="delay")]
            return bool(states) and all(each.in_sync and each.state == "ok" for each in states)
        return False

    async def fault(self) -> None:
        """One, at random."""
        chance = self._random.random()
        if chance < 0.2:
            name = self._random.choice([each for each in self._clients if "consume" in each])
            self._note(f"kill -9 {name}")
            self._clients[name].kill()
            self._clients[name].wait()
            self.start_client(name)
            return
        pid, name = self._random.choice(sorted(self.servers().items(), key=lambda each: each[1]))
        if chance < 0.6:
            self._note(f"kill -9 {name}")
            _signal(pid, signal.SIGKILL)
            return
        seconds = self._random.choice((0.5, 2.0, 8.0))
        self._note(f"stop {name} for {seconds:g} s")
        _signal(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        _signal(pid, signal.SIGCONT)

    def _note(self, fault: str) -> None:
        self.faults.append(fault)
        say(f"{time.strftime('%H:%M:%S')} {fault}")

    # All of it.

    async def run(self, seconds: float) -> None:
        """Load and faults, then the end of both, then the judgement."""
        loop = asyncio.get_running_loop()
        until_then = loop.time() + seconds
        sampling = asyncio.create_task(self._sample_forever())
        async with ternmq.connect(self._cluster.url, app="judge", wait=60) as mq:
            while loop.time() < until_then:
                await asyncio.sleep(self._random.uniform(*QUIET_S))
                self.look_at_clients()
                await self.fault()
                try:
                    await until(lambda: self.whole(mq), "all members in step", seconds=WHOLE_S)
                except AssertionError:
                    self.wrong.append(f"not whole again {WHOLE_S:g} s after: {self.faults[-1]}")
            sampling.cancel()
            await asyncio.to_thread(self.end_clients, "produce")
            await self._judge(mq)

    async def _sample_forever(self) -> None:
        while True:
            await asyncio.to_thread(self.sample)
            await asyncio.sleep(SAMPLE_S)

    async def _judge(self, mq: ternmq.Client) -> None:
        async def settled() -> bool:
            waiting = await mq.admin.delays.rows(limit=1)
            return not waiting and not await unsettled(mq)

        try:
            await until(settled, "everything settled", seconds=SETTLED_S, every=0.5)
        except AssertionError:
            self.wrong += [f"not settled: {each}" for each in await unsettled(mq)]
        await asyncio.to_thread(self.end_clients, "consume")
        self.wrong += Diaries(self._folder).check(await dead_letters(mq))

    def growths(self) -> dict[str, Growth]:
        """Of every server life that was long enough to say something."""
        found = {}
        for (name, pid), samples in self.samples.items():
            grown = growth(samples)
            if grown is not None:
                found[f"{name} ({pid})"] = grown
        return found


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def report(soak: Soak) -> list[str]:
    """A table of what servers used, and what is wrong."""
    wrong = list(soak.wrong)
    say(f"{'process':28} {'memory MiB':>15} {'descriptors':>13} {'threads':>9}")
    for name, (before, after) in sorted(soak.growths().items()):
        memory = f"{before.memory >> 20} -> {after.memory >> 20}"
        descriptors = f"{before.descriptors} -> {after.descriptors}"
        say(f"{name:28} {memory:>15} {descriptors:>13} {before.threads:>4} -> {after.threads}")
        if not Growth(before, after).flat:
            wrong.append(f"{name} grows")
    return wrong


def soak(seconds: float, seed: int) -> list[str]:
    """Run one; what is wrong."""
    with tempfile.TemporaryDirectory(prefix="tern-soak-") as temporary:
        folder = Path(temporary)
        factory = NodeFactory(folder)
        cluster = factory.cluster("--metas", "1", "--groups", "1", "--delays", "1", "--restart")
        clients = folder / "clients"
        clients.mkdir()
        one = Soak(cluster, clients, seed)
        try:
            for name in CLIENTS:
                one.start_client(name)
            asyncio.run(one.run(seconds))
        finally:
            one.kill_clients()
            wrong = report(one)
            counts = {key: len(found) for key, found in Diaries(clients).told().items()}
            stored = sum(count for (what, _), count in counts.items() if what == "stored")
            say(f"seed {seed}: {len(one.faults)} faults, {stored} messages acknowledged")
            try:
                factory.finish()
            except AssertionError as complaint:
                wrong.append(str(complaint)[-3000:])
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = soak(60 * options.minutes, options.seed)
    for each in wrong:
        say(f"wrong: {each}")
    say("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
