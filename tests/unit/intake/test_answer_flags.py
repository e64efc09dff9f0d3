"""What an answer says of a stored batch: how safe it is, whether it is traced (R3)."""

import pytest

from ternmq.intake.answer_flags import AnswerFlags
from ternmq.wire.messages.publish import (
    PUBLISHED_REPLICATED,
    PUBLISHED_SAFETY,
    PUBLISHED_SYNCED,
    PUBLISHED_TRACED,
    PUBLISHED_WRITTEN,
)
from tests.lone_gate import LoneGate


@pytest.mark.parametrize(
    ("synced", "alone"), [(True, PUBLISHED_SYNCED), (False, PUBLISHED_WRITTEN)]
)
def test_what_replicas_have_is_called_so_only_while_they_are_waited_for(
    synced: bool, alone: int
) -> None:
    gate = LoneGate()
    flags = AnswerFlags(gate, synced=synced, traced=False)
    assert flags.now == alone

    gate.copied = True
    assert flags.now == PUBLISHED_REPLICATED

    gate.copied = False  # The last replica left the set.
    assert flags.now == alone


def test_the_trace_is_said_apart_from_the_safety() -> None:
    flags = AnswerFlags(LoneGate(), synced=True, traced=True)

    assert flags.now & PUBLISHED_TRACED
    assert flags.now & PUBLISHED_SAFETY == PUBLISHED_SYNCED
