"""What a changed policy makes of settings; pure. Values out of their limits are refused here."""

from collections.abc import Callable

import msgspec

from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.core.units import DAY_MS, HOUR_MS
from ternmq.discovery.hidden_topics import LIMIT_PREFIX, consume_limit, send_limit
from ternmq.wire.messages.limits import AppLimit, LimitSet, TopicSet
from ternmq.wire.messages.order_keys import Home
from ternmq.wire.messages.servers import Encryption
from ternmq.wire.messages.topics import KEY_PERIOD_MS, Topic, TopicSettings

RATE_MAX = 10**12
BODY_SIZE_MAX = 4 * 1024 * 1024
GROUPS_MAX = 1_000
KEY_PERIOD_MS_MIN, KEY_PERIOD_MS_MAX = HOUR_MS, 3_650 * DAY_MS
NO_LIMIT = TopicSettings()


def topic_change(wanted: TopicSet) -> Callable[[TopicSettings], TopicSettings]:
    """The settings with what is wanted put in, checked."""
    changes = {
        name: value
        for name, value in msgspec.structs.asdict(wanted).items()
        if name != "name" and value is not None
    }
    check_settings(wanted)
    return lambda settings: msgspec.structs.replace(settings, **changes)


def check_settings(wanted: TopicSet | TopicSettings) -> None:
    """Refuse what no topic can have; of a change only what is changed."""
    for app in wanted.apps or ():
        check_name("application", app)
    if wanted.body_size_max is not None and not 1 <= wanted.body_size_max <= BODY_SIZE_MAX:
        raise BadRequest(f"body_size_max is {wanted.body_size_max}; it can be 1 to {BODY_SIZE_MAX}")
    if wanted.keep_ms is not None and not 0 <= wanted.keep_ms < 2**62:
        raise BadRequest("keep_ms is a time in milliseconds, or 0 for none of its own")
    for group in wanted.on_groups or ():
        check_name("broker group", group)
    if wanted.broker_groups is not None and not 0 <= wanted.broker_groups <= GROUPS_MAX:
        raise BadRequest(f"broker_groups is {wanted.broker_groups}; it can be 0 (all) to 1000")
    if wanted.master_key:
        check_name("master key", wanted.master_key)
    period_ms = wanted.key_period_ms
    if period_ms and not KEY_PERIOD_MS_MIN <= period_ms <= KEY_PERIOD_MS_MAX:
        raise BadRequest("key_period is a time of 1 hour to 3650 days, or 0 for 30 days")
    _check_rates(wanted.rate, wanted.bytes_rate)


def encryption_of(settings: TopicSettings) -> Encryption | None:
    """How producers encrypt bodies; None: not at all."""
    if not settings.master_key:
        return None
    return Encryption(
        master_key=settings.master_key, period_ms=settings.key_period_ms or KEY_PERIOD_MS
    )


def home_of(settings: TopicSettings) -> Home | None:
    """Where a topic lives, if that is not everywhere."""
    if not settings.broker_groups and not settings.on_groups:
        return None
    return Home(count=settings.broker_groups, broker_groups=settings.on_groups)


def body_limit_of(settings: TopicSettings) -> int | None:
    """What a body may have, if that is less than any may have; before compression."""
    any_topic = TopicSettings().body_size_max
    return settings.body_size_max if settings.body_size_max < any_topic else None


def limit_changes(wanted: LimitSet) -> dict[str, TopicSet]:
    """Which topics of ours change when the limits of an application do."""
    check_name("application", wanted.app)
    _check_rates(wanted.rate, wanted.bytes_rate, wanted.consume_rate, wanted.consume_bytes_rate)
    pairs = {
        send_limit(wanted.app): (wanted.rate, wanted.bytes_rate),
        consume_limit(wanted.app): (wanted.consume_rate, wanted.consume_bytes_rate),
    }
    return {
        name: TopicSet(name=name, rate=rate, bytes_rate=bytes_rate)
        for name, (rate, bytes_rate) in pairs.items()
        if (rate, bytes_rate) != (None, None)
    }


def app_limit(app: str, find: Callable[[str], Topic | None]) -> AppLimit:
    """The limits of an application as they are."""
    send, consume = find(send_limit(app)), find(consume_limit(app))
    sends = send.settings if send else NO_LIMIT
    consumes = consume.settings if consume else NO_LIMIT
    return AppLimit(
        app=app,
        rate=sends.rate,
        bytes_rate=sends.bytes_rate,
        consume_rate=consumes.rate,
        consume_bytes_rate=consumes.bytes_rate,
    )


def limited_apps(topics: list[Topic]) -> list[str]:
    """Every application that a limit was ever set for and not taken away since."""
    return sorted(
        {
            topic.name.removeprefix(LIMIT_PREFIX).partition(".")[2]
            for topic in topics
            if topic.name.startswith(LIMIT_PREFIX)
            and (topic.settings.rate or topic.settings.bytes_rate)
        }
    )


def _check_rates(*rates: int | None) -> None:
    for rate in rates:
        if rate is not None and not 0 <= rate <= RATE_MAX:
            raise BadRequest(f"a rate of {rate}; it can be 0 (no limit) to {RATE_MAX} a second")
