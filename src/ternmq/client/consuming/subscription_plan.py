"""What a consumer wants, and where what it gets goes: between a consumer and its subscriptions."""

from dataclasses import dataclass
from typing import Protocol

from ternmq.client.model.codec import Codec
from ternmq.client.model.delivery import Delivery
from ternmq.core.errors import TernError
from ternmq.wire.messages.groups import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """What a consumer wants."""

    group: str
    topics: list[str]
    start: Start
    start_given: bool
    prefetch: int
    codec: Codec | None
    timeout: float
    """Seconds for one request."""
    tag: str = ""
    filter: str = ""
    ordered: bool = False
    attempts_max: int | None = None


class DeliverySink(Protocol):
    """Where deliveries go."""

    def arrived(self, deliveries: list[Delivery]) -> None: ...

    def unshown(self, delivery: Delivery) -> list[tuple[int, int]]:
        """Rows of a delivery that were not shown yet."""

    def withdraw(self, delivery: Delivery) -> None:
        """Do not show what was not shown yet; mark those rows settled."""

    def give_back(self, source: object) -> None:
        """Settle what was not shown yet of this source's deliveries: somebody else gets it."""

    def failed(self, error: TernError) -> None: ...
