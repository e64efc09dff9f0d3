"""Groups and topics page by page, sorted and cut at the broker, as a console shows thousands."""

from ternmq.wire.messages.groups import Group
from ternmq.wire.messages.stats import GroupFigures, TopicFigures
from ternmq.wire.record import Number, Record

FIGURES_LISTED_MAX = 500
"""Groups or topics in one page."""
FIGURES_SORTED_MAX = 1_000
"""So far a list goes that is not sorted by name."""


class FiguresPageFind(Record, frozen=True):
    """Which ones, in which order."""

    kind: str = "groups"
    """groups, topics"""
    sort: str = "name"
    """name; of groups age, ready, dead, rate; of topics rate, refused: the worst first"""
    after: str = ""
    """`following` of the page before."""
    limit: Number = 100
    prefix: str = ""
    """Of the name of the topic."""
    keys: list[tuple[str, str]] = []
    """These and no others: topic and group, or topic and nothing."""


class FigureSums(Record, frozen=True):
    """All of this broker group together, as last counted."""

    topics: Number = 0
    groups: Number = 0
    ready: Number = 0
    in_flight: Number = 0
    waiting_retry: Number = 0
    dead: Number = 0
    consumers: Number = 0
    rate_in: float = 0.0
    bytes_in: float = 0.0
    rate_out: float = 0.0


class FiguresPage(Record, frozen=True):
    """Some of them, exact at this moment; only the order and the sums are as last counted."""

    groups: list[Group] = []
    """Every lane of the groups of this page."""
    figures: list[GroupFigures] = []
    """Of the same lanes, in the same order."""
    topics: list[TopicFigures] = []
    following: str = ""
    """Ask for more after this; empty: these were the last."""
    sums: FigureSums = FigureSums()
    age_s: float = 0.0
    """So long ago all were counted: at most every second, and never more than a twentieth of the
    time is spent on it."""
