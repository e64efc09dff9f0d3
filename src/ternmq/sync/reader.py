"""Blocking `read`: a topic from one place to another, without a group."""

from collections.abc import Iterator

from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.reading.reader import Reader as AsyncReader
from ternmq.sync.loop_thread import run


class Reader:
    """Messages in order: iterate over it, or over `.batches()`."""

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[Message]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[MessageBatch]:
        """The same in pieces, as they are stored."""
        pieces = self._reader.batches()

        async def following() -> MessageBatch | None:
            return await anext(pieces, None)

        while True:
            batch = run(following())
            if batch is None:
                return
            yield batch
