"""`mq.broadcast`, blocking: every instance gets every message."""

from collections.abc import Iterator

from ternmq.client.model.message import Message
from ternmq.client.reading.broadcast import Broadcast as AsyncBroadcast
from ternmq.sync.loop_thread import run


class Broadcast:
    """One instance that reads along. Use it in `with`."""

    def __init__(self, broadcast: AsyncBroadcast) -> None:
        self._broadcast = broadcast

    def __enter__(self) -> "Broadcast":
        run(self._broadcast.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(self._broadcast.__aexit__(None, None, None))

    def __iter__(self) -> Iterator[Message]:
        messages = aiter(self._broadcast)

        async def following() -> Message | None:
            return await anext(messages, None)

        while (message := run(following())) is not None:
            yield message
