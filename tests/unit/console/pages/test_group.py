"""How a group is doing, as one sentence: a test for each."""

from ternmq.api.views.snapshot import STATES, GroupView
from ternmq.console.pages.group import why_slow


def sentence(*, rate_in: float = 0.0, members: int = 1, **changes: object) -> str:
    counts = dict.fromkeys(STATES, 0) | {
        name: changes.pop(name) for name in STATES if name in changes
    }
    facts = {
        "paused": False,
        "held_back": "",
        "rate_out": 0.0,
        "growth": 0.0,
    } | changes
    view = GroupView(
        topic="t",
        name="g",
        counts=counts,  # type: ignore[arg-type]
        total=0,
        members=members,
        ordered=False,
        filter="",
        age_ms=0,
        alarm=False,
        **facts,  # type: ignore[arg-type]
    )
    return why_slow(view, rate_in)


def test_each_reason_has_its_sentence() -> None:
    assert "It is paused: 5 messages wait" in sentence(ready=5, paused=True)
    assert sentence(acked=3) == "Everything is handled."
    assert "held back (rate)" in sentence(ready=5, held_back="rate")
    assert sentence(ready=5, members=0) == "Nobody consumes: 5 messages wait."
    assert "2 messages failed and wait" in sentence(waiting_retry=2)
    assert "hold all that is open: 7" in sentence(in_flight=7)
    assert "take nothing: they hold 7" in sentence(ready=5, in_flight=7)
    assert sentence(ready=60, rate_out=4.0, rate_in=2.0, growth=-2.0) == (
        "60 messages wait; 4/s go out, 2/s come in: empty in 30 s."
    )
    assert "it does not become less" in sentence(ready=60, rate_out=4.0, growth=1.0)
