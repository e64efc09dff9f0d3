"""A producer with a spool in a process of its own, which a test kills at a chosen point.

    python -m tests.integration.client.spool_producer URL SPOOL POINT NUMBER

Sends one message; POINT is where the process kills itself. SPOOL "-" is a producer without one.
"""

import asyncio
import sys

import ternmq
from ternmq.client.spool.spool import Spool
from ternmq.client.spool.spool_file import SpoolFile
from tests.integration.kill_points import die, wrap

POINTS = (
    "before it is in the file",
    "in the file, not accepted",
    "accepted, no broker group chosen",
    "broker group chosen, not noted",
    "broker group noted, not sent",
    "sent, not settled",
    "settled, not noted",
    "noted",
)
HANDED_OVER = "send_nowait has returned"
IN_THE_FILE_FROM = 1
STORED_FROM = POINTS.index("sent, not settled")


def prepare(point: str) -> None:
    if point == "before it is in the file":
        wrap(SpoolFile, "put", before=True)
    elif point == "in the file, not accepted":
        wrap(SpoolFile, "put", before=False)
    elif point == "accepted, no broker group chosen":
        wrap(Spool, "_send_some", before=True)
    elif point == "broker group chosen, not noted":
        wrap(SpoolFile, "give", before=True)
    elif point == "broker group noted, not sent":
        wrap(SpoolFile, "give", before=False)
    elif point == "sent, not settled":
        wrap(Spool, "_deliver", before=False)
    elif point == "settled, not noted":
        wrap(SpoolFile, "settle", before=True)
    elif point == "noted":
        wrap(SpoolFile, "settle", before=False)


async def main(url: str, spool: str, point: str, number: str) -> None:
    prepare(point)
    async with ternmq.connect(url, app="meter", spool=None if spool == "-" else spool) as mq:
        mq.send_nowait("reading", number.encode())
        if point == HANDED_OVER:
            die()
        await mq.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
