"""The last gate: what no server could read is refused by the name of its field (B7)."""

from datetime import timedelta
from typing import Any, cast

import pytest

from ternmq.client.model.request_check import sendable
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.dead_letters import DeadHandle
from ternmq.wire.messages.groups import GroupFind, GroupReset, GroupSet, Start
from ternmq.wire.messages.order_keys import PlaceChange
from ternmq.wire.record import Record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (GroupFind(topic=cast("Any", 5)), "topic is 5; it can be a text"),
        (GroupFind(group=cast("Any", object())), "(object); it can be a text"),
        (GroupFind(topic="\ud800"), "it can be a text"),
        (GroupFind(topic=cast("Any", timedelta(seconds=5))), "it can be a text"),
        (
            DeadHandle(group="g", ranges=cast("Any", [1])),
            "ranges is [1]; it can be a list of pairs",
        ),
        (GroupReset(topic="t", group="g", start=cast("Any", 5)), "start is 5; it can be a Start"),
        (
            GroupReset(topic="t", group="g", start=Start(value=cast("Any", "now"))),
            "start is Start(",
        ),
        (GroupSet(topic="t", group="g", rate=2**70), "it can be a whole number"),
        (PlaceChange(action=cast("Any", "go")), "action is 'go'; it can be 'read' or 'assign'"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(record: Record, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        sendable(record)
    assert said in caught.value.message


def test_what_a_server_can_read_is_sent_as_it_is() -> None:
    record = DeadHandle(group="g", ranges=[(1, 2)])

    assert sendable(record) is record
