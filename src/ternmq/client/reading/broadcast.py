"""`mq.broadcast`: every instance gets every message (Q15, R5).

    async with mq.broadcast("cache.drop") as every:
        async for message in every: ...

Nothing is leased or acked and the broker keeps no trace of an instance: it reads along from where
it came in. A restarted instance begins at the latest message, or, with `position=` a file of its
own, where it stopped, on every broker group. There is no retry: what a handler makes of a message
is its own business.
At least once per instance: after a crash the last second may be shown again from the file.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, TypedDict

from ternmq.batch.selector.filter import parse_filter
from ternmq.client.admin.admin import Admin
from ternmq.client.codecs.codec import Codec, CodecName, find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_typed_options, check_value
from ternmq.client.model.message import Message
from ternmq.client.reading.reader import Reader, ReadOptions, from_replica
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut, not_answered
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import plain_name
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.numbers import Command

SAVE_EVERY_S = 1.0


class BroadcastOptions(TypedDict, total=False):
    """The keywords of `broadcast`, for type checkers."""

    position: str | Path | None
    codec: Codec | CodecName | None
    broker_group: str
    tag: str
    filter: str
    from_: Literal["master", "replica"]


def check_broadcast(topic: str, options: BroadcastOptions) -> None:
    """Raises what is wrong with a call."""
    check_value("topic", topic, str)
    check_name("topic", plain_name(topic))
    check_typed_options("broadcast", options, BroadcastOptions, but=("codec", "from_"))
    from_replica(options.get("from_", "master"))
    find_codec(options.get("codec"))
    parse_filter(options.get("tag", ""), options.get("filter", ""))


class Broadcast:
    """One instance that reads along. Use it in `async with`."""

    def __init__(
        self, cluster: Cluster, topic: str, options: BroadcastOptions, config: ClientConfig
    ) -> None:
        check_broadcast(topic, options)
        self._from_replica = from_replica(options.get("from_", "master"))
        self._cluster = cluster
        self._topic = topic
        self._options = options
        self._config = config
        position = options.get("position")
        self._file = Path(position) if position is not None else None
        self._next: dict[str, int] | None = None
        """Where to go on, by broker group."""
        self._begun: Start | None = None
        self._saved_at = 0.0

    async def __aenter__(self) -> "Broadcast":
        """From now on nothing is missed."""
        self._next = await self._load()
        if self._next is None:
            self._begun = Start(at="time", value=SystemClock().now_ms())
            self._next = await self._latest()
        self._save()
        return self

    async def _latest(self) -> dict[str, int]:
        admin, end = Admin(self._cluster).tolerant(), Start(at="latest")
        group = self._options.get("broker_group", "")
        if self._from_replica:
            fan_out = FanOut(self._cluster, admin.missing, replicas=True)
            groups = [await fan_out.only("a position", group)] if group else None
            seek = Seek(topic=self._topic, start=end)
            ends = await fan_out.ask(Command.SEEK, seek, Sought, groups)
        elif group:
            return {group: (await admin.seek(self._topic, end, group)).sequence}
        else:
            ends = await admin.seek_all(self._topic, end)
        if not ends:
            raise not_answered(admin.missing, [])
        return {name: sought.sequence for name, sought in ends.items()}

    async def __aexit__(self, *exc_info: object) -> None:
        self._save()

    async def __aiter__(self) -> AsyncIterator[Message]:
        if self._next is None:
            raise BadRequest("use broadcast() in 'async with' ('with' in ternmq.sync)")
        read: ReadOptions = {"start": self._next, "follow": True}
        for name in ("codec", "broker_group", "tag", "filter", "from_"):
            if name in self._options:
                read[name] = self._options[name]
        reader = Reader(self._cluster, self._topic, read, self._config, late_start=self._begun)
        async for message in reader:
            yield message
            # Only now: whoever takes the next is done with this.
            self._next[message.broker_group] = message.sequence + 1
            now = asyncio.get_running_loop().time()
            if self._file is not None and now - self._saved_at > SAVE_EVERY_S:
                self._saved_at = now
                self._save()

    async def _load(self) -> dict[str, int] | None:
        if self._file is None or not self._file.exists():
            return None
        try:
            kept: Any = json.loads(self._file.read_text(encoding="utf-8"))
            if kept["topic"] != self._topic:
                raise BadRequest(f"{self._file} is the position in {kept['topic']!r}")
            if "sequence" in kept:  # Of a release that knew one broker group.
                wanted = self._options.get("broker_group", "")
                only = await FanOut(self._cluster).only("the position in it", wanted)
                return {only: int(kept["sequence"])}
            return {str(group): int(at) for group, at in kept["sequences"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadRequest(
                f"{self._file} is not a position of a broadcast ({error}); remove it to begin at "
                "the latest message"
            ) from error

    def _save(self) -> None:
        if self._file is None or self._next is None:
            return
        whole = json.dumps({"topic": self._topic, "sequences": self._next})
        beside = self._file.with_name(self._file.name + ".new")
        try:
            beside.write_text(whole, encoding="utf-8")
            beside.replace(self._file)
        except OSError as error:
            raise BadRequest(
                f"cannot keep the position in {self._file}: {error.strerror}"
            ) from error
