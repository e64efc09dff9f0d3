"""`Ready`: an awaitable whose result is there already.

For calls that have happened when they return and may be awaited all the same, so that one name
serves blocking and async callers.
"""

from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Ready(Generic[T]):
    """Awaiting it costs nothing."""

    __slots__ = ("result",)

    def __init__(self, result: T) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, None, T]:
        return self.result
        yield
