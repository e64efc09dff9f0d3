"""Why a message was not (or was) delivered, in one sentence.

`explain` takes what a broker says of one message in one group (`MessageState`), the group, and how
the group is doing, and says what holds the message up first: what a person decided comes before
what the queue waits for. Pure: values in, text out. Never guesses; what is not known is not said.
"""

from dataclasses import dataclass

from ternmq.client.model.times import time_from_ms
from ternmq.wire.inspection.rows import Holder, MessageState
from ternmq.wire.inspection.trace import TraceEvent
from ternmq.wire.messages.groups import Group
from ternmq.wire.messages.stats import GroupFigures

UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
SETTLING = {"acked": "acked", "dead": "dead", "expired": "expired", "filtered": "filtered"}
HELD_BACK_BY_PEOPLE = "consuming the topic is paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known besides the state of the message itself."""

    group: Group | None = None
    figures: GroupFigures | None = None
    events: tuple[TraceEvent, ...] = ()
    """What the delivery records say of this message in this group."""


def explain(state: MessageState, known: Known) -> str:
    """One sentence about one message in one group."""
    match state.state:
        case "ready":
            return _ready(state, known)
        case "in_flight":
            return _in_flight(state)
        case "waiting":
            return _waiting(state)
        case "stopped":
            return (
                f"it failed at attempt {state.attempt - 1} and stands still, with its order key, "
                f"until somebody lets it go on (tern group resume --key)"
                f"{_because(state)}"
            )
        case "moving":
            return f"it is on its way to the dead letters of {state.group}{_because(state)}"
        case _:
            return _settled(state, known)


def _ready(state: MessageState, known: Known) -> str:
    group, figures = known.group, known.figures
    held_back = figures.held_back if figures is not None else ""
    if group is not None and group.settings.paused:
        return f"group {state.group} is paused: nothing is handed out until it is resumed"
    if held_back == HELD_BACK_BY_PEOPLE:
        return f"{held_back}: nothing is handed out to any group until it is resumed"
    if group is not None and not group.members:
        return f"nobody consumes in group {state.group} at present"
    if group is not None and _all_paused(group):
        return f"every consumer of group {state.group} is paused"
    if state.blocking_sequence >= 0:
        return (
            f"it waits behind message {state.blocking_sequence} of order key "
            f"{state.blocking_key!r}, which is not settled"
        )
    if state.slot_held:
        return (
            "its order key was moved to this broker group, and what is left of the key on the "
            "other one comes first"
        )
    if held_back:
        return f"group {state.group} is held back: {held_back}"
    again = f" again, as attempt {state.attempt}" if state.attempt > 1 else ""
    return f"it is ready to be handed out{again}{_queue(figures)}"


def _all_paused(group: Group) -> bool:
    paused = set(group.settings.paused_sessions)
    return bool(paused) and all(member.session in paused for member in group.members)


def _queue(figures: GroupFigures | None) -> str:
    """How long that may take."""
    if figures is None or figures.backlog <= 1:
        return ""
    rate = figures.delivered.messages_60s
    ahead = f": {figures.backlog} messages are ready in its group"
    if rate <= 0:
        return f"{ahead}, and none was handed out in the last minute"
    return f"{ahead}, and {rate:.1f} a second are handed out ({_span(figures.backlog / rate)} more)"


def _in_flight(state: MessageState) -> str:
    for_how_long = ""
    if state.since_ms:
        for_how_long = f" for {_span((state.now_ms - state.since_ms) / 1000)}"
    began = "is being handled" if state.started else "is held"
    left = state.until_ms - state.now_ms
    lease = f"its lease ends in {_span(left / 1000)}" if left > 0 else "its lease is over"
    gone = "" if state.holder.app else ", whose connection is gone"
    return (
        f"it {began} by {who(state.holder)}{gone}{for_how_long}, attempt {state.attempt}; {lease}"
        f"{_because(state)}"
    )


def _waiting(state: MessageState) -> str:
    left = state.due_ms - state.now_ms
    due = f"in {_span(left / 1000)}" if left > 0 else "now"
    return (
        f"it waits for attempt {state.attempt}, due {due} ({_utc(state.due_ms)}){_because(state)}"
    )


def _settled(state: MessageState, known: Known) -> str:
    event = next((each for each in reversed(known.events) if each.kind in SETTLING), None)
    when = f" at {_utc(event.at_ms)}" if event is not None else ""
    match state.state:
        case "acked":
            return f"it was acked{when}{_by(known)}"
        case "dead":
            return f"it is a dead letter of {state.group}{when} (tern dead list {state.group})"
        case "expired":
            return f"it expired{when} before it was acked: its time to live or retention was over"
        case "filtered":
            group = known.group
            rule = f" by {group.filter!r}" if group is not None and group.filter else ""
            return f"it was filtered{rule}{when}: the group's consumers do not want it"
        case "skipped":
            return f"it was skipped when group {state.group} was moved forward (a reset)"
        case "before":
            return f"it was stored before group {state.group} began, or was last reset"
        case "unstored":
            return "nothing is stored at this sequence yet"
        case _:
            return "it is settled; how is not remembered any more (tern trace reads the records)"


def _by(known: Known) -> str:
    """Who had it in hand when it was acked."""
    acked = next((each for each in reversed(known.events) if each.kind == "acked"), None)
    if acked is None:
        return ""
    for event in reversed(known.events):
        if event.kind == "handed_out" and event.lease == acked.lease:
            return f" by {who(event.holder)}"
    return ""


def who(holder: Holder) -> str:
    """A consumer as people know it."""
    if not holder.app:
        return f"session {holder.session[:8]}"
    return f"{holder.app}@{holder.host}:{holder.pid}"


def _because(state: MessageState) -> str:
    return f"; the last error was {state.error!r}" if state.error else ""


def _span(seconds: float) -> str:
    """A length of time in its largest unit."""
    ms = max(0, int(seconds * 1000))
    for size, unit in UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def _utc(ms: int) -> str:
    return time_from_ms(ms).strftime("%Y-%m-%dT%H:%M:%SZ")
