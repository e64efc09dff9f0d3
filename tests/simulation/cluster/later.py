"""Messages for later in a simulated cluster: sent with a delay, some of them cancelled.

The rules: what was acknowledged and not cancelled comes out once, and not before it is due by the
clock of the delay server; what was told to be cancelled never does.
"""

import asyncio

from ternmq.client.admin.delays import CancelResult
from ternmq.client.client import Client
from ternmq.core.errors import TernError
from tests.simulation.cluster.journal import Journal
from tests.simulation.world.world import World

LATER = "reminders"


class Later:
    """What producers do with delayed messages."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._chance = world.random
        self._journal = journal

    async def send(self, mq: Client) -> None:
        """One message, and perhaps second thoughts; raises what failed."""
        chance, journal = self._chance, self._journal
        delay = chance.choice((0.3, 2.0, 6.0)) * (0.5 + chance.random())
        body = journal.body(LATER, None, chance.randrange(200))
        journal.due[body] = self._world.now + delay
        try:
            receipt = await mq.send(LATER, body, delay=delay)
        except TernError as error:
            journal.failed([body], error)
            raise
        journal.kept.add(body)
        if chance.random() < 0.3:
            await asyncio.sleep(delay * chance.random() * 1.2)
            journal.cancelling.add(body)
            if await mq.cancel(receipt) is CancelResult.CANCELLED:
                journal.cancelled.add(body)
            else:
                journal.cancelling.discard(body)
