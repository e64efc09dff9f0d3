"""What a consumer asks for, and where deliveries go: between a consumer and its subscriptions.

`make_plan` checks the keywords of `mq.consumer`; every refusal says what to write instead. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict

from ternmq.client.admin.settings import change_of
from ternmq.client.codecs.codec import Codec, CodecName, find_codec
from ternmq.client.model.arguments import check_typed_options, fits
from ternmq.client.model.delivery import Delivery
from ternmq.client.model.durations import typed
from ternmq.client.model.start import StartLike, make_start
from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.ids import check_name
from ternmq.core.retry import check_policy
from ternmq.wire.messages.groups import GroupSet, Start

PREFETCH_MAX = 1_000_000
TOPICS_MAX = 1024


class GroupOptions(TypedDict, total=False):
    """Settings of the group that a consumer declares; as for `admin.set_group`."""

    retry: str | None
    on_failure: Literal["retry", "stop"] | None
    ordered_attempts_max: int | None
    rate: int | str | None
    bytes_rate: int | str | None
    in_flight_max: int | None
    consumer_in_flight_max: int | None
    backlog_alarm: int | None
    dead_letter_keep_ms: int | str | timedelta | None
    priority: bool | None


class ConsumerOptions(GroupOptions, total=False):
    """The keywords of `consumer` besides topics and group, for type checkers."""

    start: StartLike
    prefetch: int
    codec: Codec | CodecName | None
    filter: str | None
    tag: str | None
    ordered: bool
    attempts_max: int | None
    create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPlan:
    """The checked options of one consumer."""

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
    create: bool = True
    """Topics that are not there are made, where the broker does that."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the group that the code says, as they are sent."""


def consumer_options(options: dict[str, Any], codec: object) -> ConsumerOptions:
    """The client's codec applies where the consumer names none."""
    if options.get("codec") is None and codec is not None:
        options["codec"] = codec
    return options  # type: ignore[return-value]


def make_plan(
    topics: str | Sequence[str], group: str, options: ConsumerOptions, *, timeout: float
) -> SubscriptionPlan:
    """Check what a consumer is asked for."""
    check_typed_options("consumer", options, ConsumerOptions, but=("start", "codec", "prefetch"))
    if not fits(topics, str | Sequence[str]):
        raise BadRequest(f"topics is {typed(topics)}; it is one name or a list of different names")
    names = [topics] if isinstance(topics, str) else list(topics)
    if not 0 < len(names) <= TOPICS_MAX or len(set(names)) != len(names):
        raise BadRequest(f"topics is {shown(topics)}; it is one name or a list of different names")
    prefetch = checked_prefetch(options.get("prefetch", 1000))
    return SubscriptionPlan(
        group=check_name("group", group),
        topics=[check_name("topic", name) for name in names],
        start=make_start(options.get("start", "earliest")),
        start_given="start" in options,
        prefetch=prefetch,
        codec=find_codec(options.get("codec")),
        timeout=timeout,
        tag=options.get("tag") or "",
        filter=options.get("filter") or "",
        ordered=bool(options.get("ordered")),
        attempts_max=options.get("attempts_max"),
        create=options.get("create", True),
        declared=declared_settings(options),
    )


def checked_prefetch(prefetch: object) -> int:
    if isinstance(prefetch, bool) or not isinstance(prefetch, int):
        raise BadRequest(f"prefetch is {typed(prefetch)}; it is a number of messages")
    if not 0 < prefetch <= PREFETCH_MAX:
        raise BadRequest(f"prefetch is {prefetch}; it can be 1 to {PREFETCH_MAX}")
    return prefetch


def declared_settings(options: ConsumerOptions) -> dict[str, Any]:
    """The settings of the group among the keywords of a consumer, checked."""
    given: dict[str, Any] = {
        name: value
        for name in GroupOptions.__annotations__
        if (value := options.get(name)) is not None
    }
    if "retry" in given:
        check_policy(given["retry"])
    made = change_of(GroupSet, given, topic="", group="")
    return {name: getattr(made, name) for name in given}


class DeliverySink(Protocol):
    """Where deliveries go."""

    def arrived(self, deliveries: list[Delivery]) -> None: ...

    def unshown(self, delivery: Delivery) -> list[tuple[int, int]]:
        """Rows of a delivery that were not shown yet."""

    def withdraw(self, delivery: Delivery) -> None:
        """Do not show what was not shown yet; mark those rows settled."""

    def give_back(self, source: object) -> None:
        """Give rows of this source that were not shown yet back, for another consumer."""

    def failed(self, error: TernError) -> None: ...
