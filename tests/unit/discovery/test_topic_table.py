"""Names of topics in their order, whatever comes and goes."""

import random

import pytest

from ternmq.discovery import topic_table
from ternmq.discovery.topic_table import TopicTable
from ternmq.wire.messages.topics import Topic, TopicSettings


class FilledTable(TopicTable):
    """Filled and emptied by hand."""

    def put(self, name: str, number: int) -> None:
        self._put(Topic(id=number, name=name, created_at_ms=0, settings=TopicSettings()))

    def drop(self, name: str) -> None:
        topic = self.topic(name)
        assert topic is not None and self._remove(topic)


@pytest.mark.parametrize("new_names_max", [0, 3, 1_000])
def test_names_are_in_their_order_after_every_change(
    new_names_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_table, "NEW_NAMES_MAX", new_names_max)
    chance, table, known = random.Random(5), FilledTable(), set[str]()
    for number in range(2_000):
        name = f"t{chance.randrange(200)}"
        if name in known and chance.random() < 0.5:
            table.drop(name)
            known.discard(name)
        else:
            table.put(name, number)
            known.add(name)
        if chance.random() < 0.2:
            begin = f"t{chance.randrange(200)}"
            assert list(table.names_from(begin)) == sorted(n for n in known if n >= begin)
    assert list(table.names_from("")) == sorted(known)
