"""Messages that a client brings back from elsewhere (an archive): in order, each once.

A replay has a name, and lines of messages that rise in number. The broker remembers the highest
number of each line, so a replay that begins again is told where to go on. Batches go one at a time:
one is sent only when the one before it is safe, so nothing is ever missing below that number. The
same batch sent twice is recognised. Who calls must cut the same rows into the same batches.
"""

import asyncio
from collections.abc import Sequence

from ternmq.batch.encoder import Origin, Section, assemble
from ternmq.client.client import Client
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.errors import BadRequest, OverLimit
from ternmq.core.ids import MESSAGE_SEQUENCE_MAX, ProducerId
from ternmq.wire.messages.publish import PUBLISHED
from ternmq.wire.messages.read import ReplayOpen, ReplayOpened
from ternmq.wire.numbers import Command

OVER_LIMIT_WAIT_S = 0.2
OVER_LIMIT_TIMES_MAX = 300


class ReplayWriter:
    """One line of a replay on its way to one broker group."""

    def __init__(self, client: Client, broker_group: str, request: ReplayOpen) -> None:
        self._client = client
        self._group = broker_group
        self._request = request
        self._opened: ReplayOpened | None = None

    async def open(self) -> int:
        """Check everything; returns the number that the next message may have at least."""
        link = self._client.cluster.broker(self._group)
        retrying = RetryingRequest(self._client.config, f"a replay to {self._request.topic!r}")
        self._opened = await retrying.ask_record(
            link, Command.REPLAY_OPEN, self._request, ReplayOpened
        )
        return self._opened.position

    async def send(
        self,
        pieces: Sequence[Section],
        count: int,
        body_size: int,
        *,
        last: int,
        attributes: int,
    ) -> None:
        """Store one batch; `last` is the number of its last row. Returns when it is safe."""
        opened = self._opened
        assert opened is not None and opened.topic, "open first, and not for a dry run"
        if last > MESSAGE_SEQUENCE_MAX:
            raise BadRequest(f"messages above {MESSAGE_SEQUENCE_MAX} cannot be replayed")
        producer = ProducerId(start_ms=opened.start_ms, random=opened.random)
        origin = Origin(topic=opened.topic, app=self._client.app, producer=producer)
        first = last + 1 - count
        batch = assemble(list(pieces), count, body_size, origin, first, 0, attributes)
        link = self._client.cluster.broker(self._group)
        for _ in range(OVER_LIMIT_TIMES_MAX):
            retrying = RetryingRequest(self._client.config, f"a replay to {self._request.topic!r}")
            try:
                answer = await retrying.ask_bytes(link, Command.PUBLISH, batch)
                break
            except OverLimit:  # The topic's own limit: slower than the replay wants to be.
                await asyncio.sleep(OVER_LIMIT_WAIT_S)
        else:
            raise OverLimit(f"topic {self._request.topic!r} is over its limit all the time")
        *_, stored, _ = PUBLISHED.unpack(answer)
        if stored != count:
            raise BadRequest(
                f"replay {self._request.replay!r} is under way elsewhere with another choice of "
                "messages; stop one of the two"
            )
