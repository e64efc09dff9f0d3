"""Lists as one identity may see them: what it may not describe is left out of an answer; pure.

Answers are made for everybody and narrowed here, by command, on their way out; so no part of a
server has to know who asks. Who may describe everything gets lists untouched.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from ternmq.security.access.rights import Rights
from ternmq.wire.actions import Action
from ternmq.wire.inspection.figure_pages import FiguresPage
from ternmq.wire.messages.groups import Groups, Ledger
from ternmq.wire.messages.limits import AppLimits
from ternmq.wire.messages.servers import Routes
from ternmq.wire.messages.stats import AllGroupFigures, Status
from ternmq.wire.messages.transactions import HalfOpens
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack

R = TypeVar("R", bound=Record)
Narrow = Callable[[R, Rights], R]


def narrowed(command: int, payload: bytes, rights: Rights) -> bytes:
    """The answer without what is not for this identity."""
    line = NARROWED.get(command)
    if line is None or (command not in NOT_BY_DESCRIBE and rights.sees_all):
        return payload
    kind, narrow = line
    return pack(narrow(unpack(payload, kind), rights))


def _routes(routes: Routes, rights: Rights) -> Routes:
    seen = {topic: home for topic, home in routes.homes.items() if rights.sees(topic)}
    sizes = {topic: size for topic, size in routes.body_sizes.items() if rights.sees(topic)}
    keys = {topic: each for topic, each in routes.encrypted.items() if rights.sees(topic)}
    return replace(routes, homes=seen, body_sizes=sizes, encrypted=keys)


def _groups(found: Groups, rights: Rights) -> Groups:
    return replace(found, groups=[each for each in found.groups if rights.sees(each.topic)])


def _ledger(found: Ledger, rights: Rights) -> Ledger:
    return replace(
        found,
        lines=[line for line in found.lines if rights.sees(line.topic)],
        halves=[line for line in found.halves if rights.sees(line.topic)],
    )


def _figures(found: AllGroupFigures, rights: Rights) -> AllGroupFigures:
    return replace(found, groups=[each for each in found.groups if rights.sees(each.topic)])


def _figures_page(found: FiguresPage, rights: Rights) -> FiguresPage:
    """Without the sums, which are of all."""
    return FiguresPage(
        groups=[each for each in found.groups if rights.sees(each.topic)],
        figures=[each for each in found.figures if rights.sees(each.topic)],
        topics=[each for each in found.topics if rights.sees(each.topic)],
        following=found.following,
        age_s=found.age_s,
    )


def _limits(found: AppLimits, rights: Rights) -> AppLimits:
    def seen(app: str) -> bool:
        return rights.is_app(app) or rights.may(Action.DESCRIBE, "app", app)

    return AppLimits(limits=[each for each in found.limits if seen(each.app)])


def _halves(found: HalfOpens, rights: Rights) -> HalfOpens:
    """One's own, and those on topics that one may see."""

    def seen(app: str, topics: list[str]) -> bool:
        return rights.is_app(app) or (bool(topics) and all(map(rights.sees, topics)))

    kept = [each for each in found.transactions if seen(each.app, each.topics)]
    left_out = len(found.transactions) - len(kept)
    return replace(found, transactions=kept, total=found.total - left_out)


def _status(found: Status, rights: Rights) -> Status:
    """Where things lie on its machine, and where others come in, is nobody's business."""
    if rights.may(Action.CLUSTER, "cluster", ""):
        return found
    return replace(found, data_dir="", registry="", pid=0, guarded_otherwise=[])


NARROWED: dict[int, tuple[type[Any], Narrow[Any]]] = {
    Command.ROUTES: (Routes, _routes),
    Command.GROUP_LIST: (Groups, _groups),
    Command.LEDGER: (Ledger, _ledger),
    Command.GROUP_FIGURES: (AllGroupFigures, _figures),
    Command.FIGURES_PAGE: (FiguresPage, _figures_page),
    Command.LIMIT_LIST: (AppLimits, _limits),
    Command.HALF_LIST: (HalfOpens, _halves),
    Command.STATUS: (Status, _status),
}

NOT_BY_DESCRIBE = frozenset({int(Command.STATUS)})
"""Who may describe everything does not see all of it for that."""
