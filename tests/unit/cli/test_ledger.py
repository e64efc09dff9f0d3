"""The ledger line adds up, or says that it does not."""

from ternmq.cli.ledger import STATES, equation, total
from ternmq.wire.commands import LedgerLine


def a_line(**counts: int) -> LedgerLine:
    values = dict.fromkeys(STATES, 0) | counts
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
