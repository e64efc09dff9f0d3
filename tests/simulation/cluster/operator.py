"""The operator of a simulated cluster: lets other members lead, and moves order-key slots."""

import asyncio
from collections.abc import Callable

from ternmq.client.client import Client
from ternmq.core.errors import TernError
from ternmq.core.slots import SLOTS
from tests.simulation.cluster.load import SHIPPING, Load
from tests.simulation.world.machine import Process


class Operator:
    def __init__(self, load: Load, *, every: float, is_careful: Callable[[], bool]) -> None:
        self._load = load
        self._chance = load.random
        self._every = every
        self._is_careful = is_careful
        """Whether nobody must be promoted by force."""

    async def __call__(self, process: Process) -> None:
        journal = self._load.journal
        while not journal.over:
            await asyncio.sleep(self._chance.expovariate(1 / self._every))
            try:
                async with self._load.client(process) as mq:
                    await self._act(mq)
            except TernError as error:
                journal.operated.append(f"{error!r}")
            else:
                journal.operated.append("done")
        await process.stopping.wait()

    async def _act(self, mq: Client) -> None:
        groups, chance = self._load.groups, self._chance
        if len(groups) > 1 and chance.random() < 0.6:
            made = {each.broker_group for each in await mq.admin.groups(group=SHIPPING)}
            if made != set(groups):
                return  # A group that begins after a move sees each broker's own order: 0012.
            first = chance.randrange(SLOTS)
            slots = range(first, min(SLOTS, first + chance.choice((1, 200, SLOTS))))
            await mq.admin.move_slots(chance.choice(groups), slots)
        elif chance.random() < 0.6 or self._is_careful():
            await mq.admin.handover(chance.choice(groups))
        else:
            await mq.admin.promote(chance.choice(groups), force=True)
