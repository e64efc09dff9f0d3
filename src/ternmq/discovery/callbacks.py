"""Calls the callbacks that follow a change."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from ternmq.core.log import get_logger

log = get_logger()

T = TypeVar("T")


def tell_all(callbacks: Iterable[Callable[[T], None]], news: T, **name: str) -> None:
    """A bug in one callback must not keep the others from being called."""
    for callback in callbacks:
        try:
            callback(news)
        except Exception:
            log.exception("telling about a change failed", **name)
