"""For tests, yours and ours: the real node in process, a clock to turn, a disk that forgets.

async with ternmq.testing.node() as url:
    async with ternmq.connect(url, app="test") as mq: ...
"""

from ternmq.testing.clock import TurnedClock
from ternmq.testing.disk import SimulatedDisk
from ternmq.testing.node import node
from ternmq.testing.settled import settled

__all__ = ["SimulatedDisk", "TurnedClock", "node", "settled"]
