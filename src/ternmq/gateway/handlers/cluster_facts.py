"""What the cluster has, remembered for a few seconds: topics, and how groups are set."""

from dataclasses import dataclass

from ternmq.client.client import Client
from ternmq.core.clock import Clock
from ternmq.core.errors import GroupNotFound, TopicNotFound
from ternmq.gateway.config import GatewayConfig
from ternmq.gateway.handlers.settings import GroupPolicy
from ternmq.gateway.protocol.codes import Code, Refused

KEPT_S = 3.0
KNOWN_MAX = 10_000


@dataclass(slots=True)
class Remembered:
    """A fact, and until when it is taken for true."""

    policy: GroupPolicy | None
    until: float


class ClusterFacts:
    """Asks the cluster, and remembers the answers."""

    def __init__(self, mq: Client, clock: Clock, config: GatewayConfig) -> None:
        self._mq = mq
        self._clock = clock
        self._config = config
        self._topics: dict[str, float] = {}
        self._policies: dict[tuple[str, str], Remembered] = {}

    async def check_topic(self, topic: str) -> None:
        """Raises `Refused` where there is none: a misspelt topic is not made."""
        now = self._clock.monotonic()
        if self._topics.get(topic, 0.0) > now:
            return
        try:
            await self._mq.admin.topic(topic)
        except TopicNotFound as error:
            raise Refused(
                Code.TOPIC_NOT_FOUND, f"{error.message}; 'tern topic create {topic}' makes it"
            ) from None
        if len(self._topics) >= KNOWN_MAX:
            self._topics.clear()
        self._topics[topic] = now + KEPT_S

    async def policy(self, topic: str, group: str) -> GroupPolicy:
        """How a group is set, or would be where nobody has joined it yet."""
        now = self._clock.monotonic()
        found = self._policies.get((topic, group))
        if found is not None and found.policy is not None and found.until > now:
            return found.policy
        policy = await self._ask(topic, group)
        if len(self._policies) >= KNOWN_MAX:
            self._policies.clear()
        self._policies[topic, group] = Remembered(policy, now + KEPT_S)
        return policy

    async def _ask(self, topic: str, group: str) -> GroupPolicy:
        try:
            groups = await self._mq.admin.groups(topic, group)
        except (TopicNotFound, GroupNotFound):
            groups = []
        fifo = self._config.makes_ordered(group)
        if not groups:
            return GroupPolicy(fifo=fifo, retry="default", attempts_max=17)
        settings = groups[0].settings
        if settings.order:
            fifo = settings.order == "keys"
        elif any(each.ordered for each in groups):
            fifo = True
        limit = settings.ordered_attempts_max if fifo else settings.attempts_max
        return GroupPolicy(fifo=fifo, retry=settings.retry, attempts_max=limit)
