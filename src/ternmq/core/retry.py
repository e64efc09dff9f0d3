"""Retry policies, as text and as numbers: when a message that failed is delivered again.

A policy is written as people type it and kept that way, so it reads the same in a command, a
setting and a log:

    default                the table below: 16 retries from 5 s to 2 h
    rocketmq               RocketMQ's table: 10 s first, 16 retries (R12)
    fixed:5s               always the same (QMQ)
    power                  3^(n-1) seconds, at most a day (J3, JMQ)
    exponential:1s..10m    doubles from the first to the second, each up to a fifth less at random
    table:1s,10s,1m        your own; after its end the last one repeats

`delay_ms(policy, attempt)` answers for the attempt that just failed, counted from 1. `doubled` is
what parts of our own wait by, after failures in a row. Pure.
"""

from collections.abc import Callable
from functools import lru_cache

from ternmq.core.errors import BadRequest
from ternmq.core.units import DAY_MS, parse_duration_ms

DEFAULT_TABLE = "5s,30s,1m,2m,3m,4m,5m,6m,7m,8m,9m,10m,20m,30m,1h,2h"
ROCKETMQ_TABLE = "10s,30s,1m,2m,3m,4m,5m,6m,7m,8m,9m,10m,20m,30m,1h,2h"
ATTEMPTS_MAX = 10_000
AFTER_MAX_MS = 7 * DAY_MS
JITTER = 0.2
_DOUBLINGS_MAX = 30

Delay = Callable[[int, float], int]  # attempt, a number from 0 to 1 -> milliseconds


def doubled(failures: int, *, first: float, most: float) -> float:
    """`first` without any failure before, then twice as long after each, at most `most`."""
    return min(most, first * 2.0 ** min(failures, _DOUBLINGS_MAX))


def delay_ms(policy: str, attempt: int, chance: float = 0.0) -> int:
    """How long to wait after attempt number `attempt` failed."""
    return min(_compile(policy)(max(1, attempt), chance), AFTER_MAX_MS)


def check_policy(policy: str) -> str:
    """Return the policy if it can be read; else say how to write one."""
    _compile(policy)
    return policy


@lru_cache(maxsize=1_000)
def _compile(policy: str) -> Delay:
    name, _, rest = policy.strip().partition(":")
    if name == "default" and not rest:
        return _table(DEFAULT_TABLE)
    if name == "rocketmq" and not rest:
        return _table(ROCKETMQ_TABLE)
    if name == "power" and not rest:
        return lambda attempt, _: min(3 ** min(attempt - 1, 20), DAY_MS // 1000) * 1000
    if name == "fixed" and rest:
        fixed = _duration(rest, policy)
        return lambda _, __: fixed
    if name == "table" and rest:
        return _table(rest)
    if name == "exponential" and ".." in rest:
        return _exponential(rest, policy)
    raise _unreadable(policy)


def _table(text: str) -> Delay:
    steps = [_duration(step, text) for step in text.split(",")]
    return lambda attempt, _: steps[min(attempt, len(steps)) - 1]


def _exponential(text: str, policy: str) -> Delay:
    low_text, _, high_text = text.partition("..")
    low, high = _duration(low_text, policy), _duration(high_text, policy)
    if not 0 < low <= high:
        raise _unreadable(policy)

    def delay(attempt: int, chance: float) -> int:
        full = min(low << min(attempt - 1, 40), high)
        return int(full * (1 - JITTER * chance))

    return delay


def _duration(text: str, policy: str) -> int:
    try:
        return parse_duration_ms(text)
    except BadRequest as error:
        raise BadRequest(f"retry policy {policy!r}: {error.message}") from error


def _unreadable(policy: str) -> BadRequest:
    return BadRequest(
        f"{policy!r} is not a retry policy; write default, rocketmq, power, fixed:5s, "
        "exponential:1s..10m or table:1s,10s,1m"
    )
