"""The calls of a client that look at messages without a lease; `Client` inherits them.

Every one is thin: check what is wanted, hand over to what reads. What they need of the client is
declared as a protocol, so a client that lacks it does not pass the type check.
"""

from typing import Protocol, Unpack

from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_value
from ternmq.client.reading.broadcast import Broadcast, BroadcastOptions
from ternmq.client.reading.find import FindCall, Finding, FindOptions, make_find
from ternmq.client.reading.letters import Letters
from ternmq.client.reading.message_trace import MessageTrace, TraceCall
from ternmq.client.reading.reader import Reader, ReadOptions
from ternmq.client.reading.search import SearchCall, SearchOptions, SearchResult
from ternmq.client.transport.cluster import Cluster


class ReadingCalls(Protocol):
    """`mq.read`, `mq.find`, `mq.search`, `mq.trace`, `mq.letters`, `mq.broadcast`."""

    @property
    def config(self) -> ClientConfig: ...

    @property
    def cluster(self) -> Cluster: ...

    def read(self, topic: str, **options: Unpack[ReadOptions]) -> Reader:
        """Read a topic without a group: nothing is leased, nothing to ack.

        Options: start, end (aware datetime, sequence, or a dict of sequences by broker group; the
        end is not included; default: what is there now), follow (go on when the end is reached),
        broker_group (only this one), missing (as for `find`), codec, from_ ("replica": the bytes
        come from a replica where there is one, so that the master is left alone).
        """
        return Reader(self.cluster, topic, options, self.config)

    async def find(self, topic: str | None = None, **options: Unpack[FindOptions]) -> list[Finding]:
        """Messages by id or by key, stored last first, in one topic or in all.

        Options: id (26 characters, hex, or bytes), key, start and end (aware datetimes, when it
        was stored; the end is not included), limit (100), missing (a dict that takes the names of
        broker groups that do not answer; without it that is an error).
        """
        find = make_find(topic, options)
        return await FindCall(self.cluster, self.config).run(find, options.get("missing"))

    async def search(self, topic: str, **options: Unpack[SearchOptions]) -> SearchResult:
        """Messages of a topic by what is in them; looks at one after the other, the oldest first.

        Options: where (a condition on properties, as of subscriptions), text (anywhere in body,
        key, tag or properties; case is ignored), tag, start and end (as for `read`), limit (100),
        rows_max (1,000,000: look at no more), broker_group, missing (as for `find`), on_progress.
        The result says whether that was all, and where to go on.
        """
        return await SearchCall(self.cluster, self.config, topic, options).run()

    async def trace(self, id: str | bytes, topic: str | None = None) -> MessageTrace:
        """One message wherever it is kept: its state in each group, what happened to it, and in a
        sentence why. `topic`: only there. Servers that do not answer are named in `missing`."""
        check_value("topic", topic, str | None)
        return await TraceCall(self.cluster, self.config).run(id, topic)

    def letters(self, group: str = "", topic: str = "") -> Letters:
        """Dead letters of a group, or (topic alone) what was over a topic's limit: look at them,
        choose some, send them again or delete them."""
        check_value("group", group, str)
        check_value("topic", topic, str)
        return Letters(self.cluster, self.config, group, topic)

    def broadcast(self, topic: str, **options: Unpack[BroadcastOptions]) -> Broadcast:
        """Every instance gets every message from now on; use it in `async with`.

        Options: position (a file in which this instance keeps where it is), codec.
        """
        return Broadcast(self.cluster, topic, options, self.config)
