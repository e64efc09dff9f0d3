"""Who sends where, and who takes it: applications, topics and groups as one picture.

The widest flows only; widths grow with the logarithm of the rate. A line to a group is green, amber
while its backlog grows, red where nobody consumes, dashed while it is paused; the table of groups
beside it says the same in words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ternmq.api.views.snapshot import GroupView, Snapshot
from ternmq.console.formats import rate
from ternmq.console.page import path_of

TOPICS_MAX = 10
GROUPS_MAX = 14
APPS_MAX = 12
ROW = 34
BOX = 24
WIDTH = 900
COLUMNS = (0, 350, 700)
BOX_WIDTH = 200
NAME_MAX = 24


@dataclass(frozen=True, slots=True)
class FlowBox:
    """One name in a column."""

    name: str
    column: int
    y: float
    href: str = ""

    @property
    def left(self) -> int:
        return COLUMNS[self.column]

    @property
    def middle(self) -> float:
        return self.y + BOX / 2


def health_of(view: GroupView) -> str:
    """How a line to a group is drawn."""
    if view.paused:
        return "paused"
    if view.open and not view.members:
        return "nobody"
    return "behind" if view.growth > 1 and view.ready else "fine"


def flow_map(snapshot: Snapshot) -> Markup:
    """Empty where there is nothing to show."""
    groups = sorted(snapshot.groups.values(), key=lambda view: (-view.rate_out, -view.open))
    rates = {name: view.rate_in for name, view in snapshot.topics.items()}
    used = {view.topic for view in groups} | {topic for _, topic in snapshot.senders}
    topics = sorted(used & set(rates), key=lambda name: (-rates[name], name))[:TOPICS_MAX]
    if not topics:
        return Markup()
    shown = [view for view in groups if view.topic in topics][:GROUPS_MAX]
    sending = {pair: each for pair, each in snapshot.senders.items() if pair[1] in topics}
    apps = _apps(sending)
    sending = {pair: each for pair, each in sending.items() if pair[0] in apps}
    return _drawn(apps, topics, shown, sending, rates)


def _apps(sending: Mapping[tuple[str, str], float]) -> list[str]:
    sums: dict[str, float] = {}
    for (app, _), each in sending.items():
        sums[app] = sums.get(app, 0.0) + each
    return sorted(sums, key=lambda app: (-sums[app], app))[:APPS_MAX]


def _drawn(
    apps: Sequence[str],
    topics: Sequence[str],
    groups: Sequence[GroupView],
    sending: Mapping[tuple[str, str], float],
    rates: Mapping[str, float],
) -> Markup:
    tall = max(len(apps), len(topics), len(groups)) * ROW
    left = {app: FlowBox(app, 0, _place(at, len(apps), tall)) for at, app in enumerate(apps)}
    middle = {
        name: FlowBox(name, 1, _place(at, len(topics), tall), path_of("topics", name))
        for at, name in enumerate(topics)
    }
    parts: list[str] = []
    for (app, topic), each in sending.items():
        title = f"{app or 'others'} sends {rate(each)} to {topic}"
        parts.append(_line(left[app], middle[topic], each, "fine", title))
    boxes = [*left.values(), *middle.values()]
    for at, view in enumerate(groups):
        place = path_of("topics", view.topic, "groups", view.name)
        box = FlowBox(view.name, 2, _place(at, len(groups), tall), place)
        title = f"{view.name} takes {rate(view.rate_out)} of {view.topic} ({health_of(view)})"
        parts.append(_line(middle[view.topic], box, view.rate_out, health_of(view), title))
        boxes.append(box)
    parts += [_box(box) for box in boxes]
    words = f"{len(apps)} applications, {len(topics)} topics, {len(groups)} groups"
    total = rate(sum(rates[name] for name in topics))
    return Markup(
        f'<svg class="flow-map" viewBox="0 0 {WIDTH} {tall}" role="group" '
        f'aria-label="{words}; {total} come in">{"".join(parts)}</svg>'
    )


def _place(at: int, count: int, tall: int) -> float:
    """Evenly over the height."""
    return (at + 0.5) * tall / max(1, count) - BOX / 2


def _line(one: FlowBox, other: FlowBox, each: float, health: str, title: str) -> str:
    begin, end = one.left + BOX_WIDTH, other.left
    half = (begin + end) / 2
    path = (
        f"M{begin},{one.middle:.1f} C{half},{one.middle:.1f} {half},{other.middle:.1f} "
        f"{end},{other.middle:.1f}"
    )
    wide = 1.5 + 2.2 * math.log10(1 + each)
    return (
        f'<path class="flow-{health}" d="{path}" stroke-width="{wide:.1f}">'
        f"<title>{escape(title)}</title></path>"
    )


def _box(box: FlowBox) -> str:
    name = box.name or "others"
    short = name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 1]}…"
    inner = (
        f'<rect class="flow-box" x="{box.left}" y="{box.y:.1f}" width="{BOX_WIDTH}" '
        f'height="{BOX}" rx="6"/><text class="flow-name" x="{box.left + 10}" '
        f'y="{box.middle + 4.5:.1f}">{escape(short)}</text><title>{escape(name)}</title>'
    )
    return f'<a href="{escape(box.href)}">{inner}</a>' if box.href else f"<g>{inner}</g>"
