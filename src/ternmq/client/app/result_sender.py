"""Sends what a handler returns to the topic of `publish=`; the message is acked after that.

One value is one message; a batch handler returns a list of them. `Outgoing` says key, properties
and the rest itself. Without a codec, bytes and text go as they are and all else as JSON, so that a
handler with an annotation reads what another one returned.
"""

from typing import Any

from ternmq.batch.encoder import Outgoing
from ternmq.client.client import Client
from ternmq.client.codecs.codec import Codec, Json
from ternmq.client.model.durations import typed
from ternmq.core.errors import BadRequest


class ResultSender:
    """One subscriber's way out."""

    def __init__(self, mq: Client, topic: str, codec: Codec | None, *, many: bool) -> None:
        self._mq = mq
        self._topic = topic
        self._codec = codec
        self._many = many

    async def send(self, result: Any) -> None:
        """Returns when all of it is stored; raises otherwise."""
        if self._many and not isinstance(result, list | tuple):
            raise BadRequest(f"a batch handler with publish= returned {typed(result)}, not a list")
        values = [self._body(value) for value in result] if self._many else [self._body(result)]
        if not values:
            return
        if len(values) == 1 and not isinstance(values[0], Outgoing):
            await self._mq.send(self._topic, values[0])
            return
        receipt = await self._mq.send_many(self._topic, values)
        for _, error in receipt.failures:
            raise error

    def _body(self, value: Any) -> Any:
        if self._codec is not None or isinstance(value, bytes | Outgoing):
            return value
        return value.encode() if isinstance(value, str) else Json().encode(value)
