"""A kombu channel: queues are topics of one consumer group, fanouts are broadcasts.

Bindings of direct and topic exchanges are those that this process has declared, as with every
virtual transport of kombu; Celery declares its queues on both sides. Nothing is made when a queue
is declared: the first message makes the topic, the first look or consumer the group, which has
everything from the beginning.
"""

from queue import Empty
from typing import Any

from kombu.transport import virtual

from ternmq.core.errors import GroupNotFound, TopicNotFound
from ternmq.kombu.leased_messages import LeasedMessages
from ternmq.kombu.names import topic_of_exchange, topic_of_queue
from ternmq.kombu.options import TransportOptions
from ternmq.sync.loop_thread import run


class TernChannel(virtual.Channel):  # type: ignore[misc]
    """One channel of a connection."""

    QoS = LeasedMessages
    supports_fanout = True
    do_restore = True
    body_encoding = None
    max_priority = 255

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.options: TransportOptions = connection.options

    # Sending.

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **kwargs: Any) -> Any:
        if exchange and self._is_everybodys(exchange):
            self._inplace_augment_message(message, exchange, routing_key)
            return self._put_fanout(exchange, message, routing_key)
        return super().basic_publish(message, exchange, routing_key, **kwargs)

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        self.connection.send(self._topic(queue), message)

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **kwargs: Any) -> None:
        self.connection.send(self._fanout_topic(exchange), message)

    # Consuming.

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", **kwargs: Any
    ) -> None:
        super().queue_bind(queue, exchange, routing_key, **kwargs)
        if exchange and self._is_everybodys(exchange):
            self.connection.listen(self, exchange, self._fanout_topic(exchange))

    def _queue_bind(self, exchange: str, *meta: Any) -> None:
        """Bindings are in the process's own tables."""

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        shared = not any(
            self._is_everybodys(binding.exchange) for binding in self.state.queue_bindings(queue)
        )
        self.connection.consume(self, queue, self._topic(queue) if shared else None, no_ack)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues and self.connection:
            self.connection.leave(queue)

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection.set_prefetch(self, prefetch_count)

    def freed(self) -> None:
        """Something is out of hand: there may be room for what is held back."""
        if self.connection is not None:
            self.connection.freed()

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        """One message without consuming: leased for some minutes, then it comes again."""
        found = self.connection.pull_one(self._topic(queue))
        if found is None:
            raise Empty
        message, payload = found
        payload["properties"]["delivery_tag"] = tag = self._next_delivery_tag()
        self.qos.lease(tag, message)
        return payload

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.qos.ack(message.delivery_tag)
        return message

    # Queues.

    def _size(self, queue: str) -> int:
        mq, topic, group = self.connection.mq, self._topic(queue), self.options.group

        async def ready() -> int:
            try:
                lines = await mq.admin.ledger(topic, group)
                if not lines:
                    await mq.admin.create_group(topic, group, exist_ok=True)
                    lines = await mq.admin.ledger(topic, group)
            except (TopicNotFound, GroupNotFound):
                return 0
            return sum(line.ready for line in lines)

        return run(ready())

    def _purge(self, queue: str) -> int:
        count = self._size(queue)
        mq, topic = self.connection.mq, self._topic(queue)

        async def purge() -> None:
            try:
                await mq.admin.reset_group(topic, self.options.group, "latest")
            except (TopicNotFound, GroupNotFound):
                return

        run(purge())
        return count

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        if if_empty and self._size(queue):
            return
        self.state.queue_bindings_delete(queue)
        self.connection.leave(queue)
        mq, topic = self.connection.mq, self._topic(queue)

        async def delete() -> None:
            try:
                await mq.admin.delete_topic(topic)
            except TopicNotFound:
                return  # Nobody has ever sent to it.

        run(delete())

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        """Nothing yet; see above."""

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        topic = self._topic(queue)
        return any(found.name == topic for found in run(self.connection.mq.admin.topics(topic)))

    # Names.

    def _is_everybodys(self, exchange: str) -> bool:
        declared = self.state.exchanges.get(exchange)
        return self.options.is_everybodys(exchange, declared["type"] if declared else "direct")

    def _topic(self, queue: str) -> str:
        return topic_of_queue(queue, self.options.topic_prefix)

    def _fanout_topic(self, exchange: str) -> str:
        return topic_of_exchange(exchange, self.options.topic_prefix)
