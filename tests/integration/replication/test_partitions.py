"""A broker group whose members stand in network namespaces, cut off from each other under load."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.broker_pair import Pair, accounted, make_pair, more
from tests.integration.namespaces import Network, Place, network
from tests.integration.ordered_load import OrderedLoad, ordered_load
from tests.integration.processes import BrokerServer, NodeFactory
from tests.integration.verifiable_clients import Verifier, verifying
from tests.waiting import until

CONTINUE = {"TERN_REPLICA_LOST": "continue"}
CUTS = ("both ways", "it is not heard", "it hears nothing", "unplugged")


def place_of(net: Network, broker: BrokerServer) -> Place:
    return next(place for place in net.places.values() if place.address == broker.host)


def cut(net: Network, place: Place, how: str) -> None:
    """Between one place and the other two; clients reach everybody unless it is unplugged."""
    if how == "unplugged":
        place.unplug()
    for other in net.others(place):
        if how in ("both ways", "it is not heard"):
            place.stop_talking_to(other)
        if how in ("both ways", "it hears nothing"):
            other.stop_talking_to(place)


@dataclass(slots=True)
class Loads:
    """Messages of any kind, and order keys with an ordered group."""

    plain: Verifier
    ordered: OrderedLoad

    async def at_work(self) -> None:
        await until(lambda: self.plain.at_work, "load", seconds=60)
        await self.ordered.more(50)

    async def more(self) -> None:
        await more(self.plain, seconds=60)

    async def check(self, pair: Pair) -> None:
        """Everything came out, each key in order and in one hand; the ledgers agree."""
        await self.ordered.finish()
        await accounted(pair, self.plain, seconds=60)


@asynccontextmanager
async def loaded(pair: Pair, folder: Path) -> AsyncIterator[Loads]:
    with verifying(pair.url, "load", folder / "load") as load:
        load.produce("a")
        load.consume("b", "g")
        async with ordered_load(pair.url, folder) as ordered:
            loads = Loads(load, ordered)
            await loads.at_work()
            yield loads


@pytest.mark.long
@pytest.mark.parametrize("how", CUTS)
async def test_a_master_that_is_cut_off_acknowledges_nothing_its_successor_lacks(
    node_factory: NodeFactory, tmp_path: Path, how: str
) -> None:
    """Q12, R19: cut off from replica and registry, while clients may still reach it.

    With `continue`, one that hears nothing may take its replica out of the set before it is given
    up, and never hear that it did: nobody may lead then until the cut is mended. So that case has
    the default, with which a sole survivor takes no messages.
    """
    alone = how != "it hears nothing"
    settings = CONTINUE if alone else {}
    with network("meta", "one", "two") as net:
        places = list(net.places.values())
        pair = await asyncio.to_thread(
            make_pair, node_factory, tmp_path, settings=settings, places=places
        )
        async with loaded(pair, tmp_path) as load:
            first = await asyncio.to_thread(pair.master)
            cut(net, place_of(net, first), how)
            await asyncio.to_thread(pair.wait_served, first)
            if alone:
                await load.more()
            net.heal()
            await asyncio.to_thread(pair.wait_in_sync, 2)
            await load.more()
            await load.check(pair)
        node_factory.finish()


@pytest.mark.long
async def test_a_replica_without_space_is_left_behind_and_catches_up(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R18: its disk is full for a while; the master goes on, and nothing is missing afterwards."""
    with network("meta", "one", "two") as net:
        places = list(net.places.values())
        pair = await asyncio.to_thread(
            make_pair, node_factory, tmp_path, settings=CONTINUE, places=places
        )
        replica = await asyncio.to_thread(pair.replica)
        await asyncio.to_thread(replica.stop)
        with small_disk(replica.data_dir, "192m"):
            await asyncio.to_thread(replica.start)
            await asyncio.to_thread(pair.wait_in_sync, 2)
            async with loaded(pair, tmp_path) as load:
                filler = replica.data_dir / "filler"
                fill(filler)
                await asyncio.to_thread(pair.wait_in_sync, 1)
                await load.more()
                filler.unlink()
                await asyncio.to_thread(pair.wait_in_sync, 2)
                first = await asyncio.to_thread(pair.master)
                first.kill()
                await asyncio.to_thread(pair.wait_served, first)
                await load.more()
                await asyncio.to_thread(first.start)
                await asyncio.to_thread(pair.wait_in_sync, 2)
                await load.check(pair)
            node_factory.finish()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """The folder on a disk of its own, in memory, with what was in it."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> None:
    """Take all the space there is."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 65_536):
            pass


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
async def test_faults_of_every_kind_one_after_the_other_lose_nothing(
    node_factory: NodeFactory, tmp_path: Path, seed: int
) -> None:
    """Q12, R19: cuts, kill -9 and SIGSTOP of either member, six in a row."""
    chance = random.Random(seed)
    with network("meta", "one", "two") as net:
        places = list(net.places.values())
        pair = await asyncio.to_thread(
            make_pair, node_factory, tmp_path, settings=CONTINUE, places=places
        )
        async with loaded(pair, tmp_path) as load:
            for _ in range(6):
                broker = chance.choice(pair.brokers)
                how = chance.choice(("both ways", "unplugged", "kill", "stand still"))
                await asyncio.to_thread(_harm, net, broker, how)
                await load.more()  # The other one goes on, as master or alone.
                await asyncio.to_thread(_help, net, broker, how)
                await asyncio.to_thread(pair.wait_in_sync, 2)
            await load.check(pair)
        node_factory.finish()


def _harm(net: Network, broker: BrokerServer, how: str) -> None:
    if how == "kill":
        broker.kill()
    elif how == "stand still":
        os.kill(broker.pid, signal.SIGSTOP)
    else:
        cut(net, place_of(net, broker), how)


def _help(net: Network, broker: BrokerServer, how: str) -> None:
    if how == "kill":
        broker.start()
    elif how == "stand still":
        os.kill(broker.pid, signal.SIGCONT)
    else:
        net.heal()
