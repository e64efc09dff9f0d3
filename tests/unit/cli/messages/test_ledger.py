"""The ledger line adds up, or says that it does not."""

from typing import Any

from ternmq.cli.messages.ledger import STATES, delay_total, equation, total
from ternmq.wire.messages.delays import DelayLedgerLine
from ternmq.wire.messages.groups import LedgerLine


def a_line(**counts: int) -> LedgerLine:
    values: dict[str, Any] = dict.fromkeys(STATES, 0) | counts
    return LedgerLine(
        topic="t", group="g", lane="topic", start=0, end=10, total=sum(counts.values()), **values
    )


def test_every_state_counts() -> None:
    line = a_line(**{state: 2**at for at, state in enumerate(STATES)})

    assert total(line) == 2 ** len(STATES) - 1
    assert set(STATES) <= set(LedgerLine.__struct_fields__)


def test_the_equation_leaves_out_what_is_empty() -> None:
    assert equation(a_line(ready=4, in_flight=1, acked=5)) == "10 = 4 ready + 1 in flight + 5 acked"
    assert equation(a_line()) == "0 = 0"


def test_what_was_for_later_is_pending_dispatched_or_cancelled() -> None:
    line = DelayLedgerLine(topic="t", accepted=7, pending=1, dispatched=2, cancelled=4)

    assert delay_total(line) == line.accepted
