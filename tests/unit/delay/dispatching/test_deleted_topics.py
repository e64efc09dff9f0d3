"""What a delay server knows of the topics of its messages."""

from collections.abc import Collection

import pytest

from ternmq.core.errors import Unavailable
from ternmq.delay.dispatching.deleted_topics import DeletedTopics, Fate
from ternmq.wire.messages.topics import Topic


class Registry:
    """Topics that live and numbers that were deleted."""

    def __init__(self, live: dict[str, int], deleted: set[int], *, answers: bool = True) -> None:
        self.live, self.deleted, self.answers = live, deleted, answers
        self.asked = 0

    def topic(self, name: str) -> Topic | None:
        number = self.live.get(name)
        return None if number is None else Topic(id=number, name=name, created_at_ms=0)

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        self.asked += 1
        if not self.answers:
            raise Unavailable("away")
        return frozenset(self.deleted.intersection(ids))


NAMES = {1: "orders"}


@pytest.mark.parametrize(
    ("registry", "fate"),
    [
        (Registry({"orders": 1}, set(), answers=False), Fate.LIVES),
        (Registry({"orders": 7}, {1}), Fate.GONE),
        (Registry({}, {1}), Fate.GONE),
        (Registry({"orders": 7}, set()), Fate.FORGOTTEN),
        (Registry({}, set()), Fate.FORGOTTEN),
        (Registry({"orders": 7}, {1}, answers=False), Fate.UNKNOWN),
        (Registry({}, {1}, answers=False), Fate.UNKNOWN),
    ],
)
async def test_only_the_registry_says_that_a_topic_is_gone(registry: Registry, fate: Fate) -> None:
    gone = DeletedTopics(registry, NAMES)  # type: ignore[arg-type]

    assert await gone.fate(1) is fate


async def test_what_is_gone_is_asked_for_once_and_what_is_forgotten_may_be_deleted_later() -> None:
    registry = Registry({}, set())
    gone = DeletedTopics(registry, NAMES)  # type: ignore[arg-type]
    assert await gone.fate(1) is Fate.FORGOTTEN

    registry.deleted.add(1)
    assert [await gone.fate(1) for _ in range(3)] == [Fate.GONE] * 3
    assert registry.asked == 2
