"""Answers of several broker groups about the same thing, merged into one. Pure.

Counts add up. So do positions: where everything is meant, "end" is how many messages there ever
were on all broker groups. What cannot be added says so: settings that differ are named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ternmq.wire.messages.groups import ConsumerInfo, Group, GroupResetDone, LedgerLine
from ternmq.wire.messages.stats import GroupFigures, Rates

COUNTS = (
    "start",
    "end",
    "total",
    "ready",
    "in_flight",
    "waiting_retry",
    "acked",
    "filtered",
    "skipped",
    "dead",
    "expired",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDone:
    """What a reset did on all broker groups; sequences are sums where there are several."""

    from_sequence: int
    to_sequence: int
    again: int
    """Messages that will be handed out (again) because of this."""
    skipped: int
    """Messages that will not be handed out because of this."""
    each: Mapping[str, GroupResetDone] = field(default_factory=dict)
    """The same by broker group."""


def reset_done(answers: Mapping[str, GroupResetDone]) -> ResetDone:
    every = list(answers.values())
    return ResetDone(
        from_sequence=sum(one.from_sequence for one in every),
        to_sequence=sum(one.to_sequence for one in every),
        again=sum(one.again for one in every),
        skipped=sum(one.skipped for one in every),
        each=dict(answers),
    )


def merged_lines(lines: Iterable[LedgerLine]) -> list[LedgerLine]:
    """One line for each lane of each group, over all broker groups, by name."""
    found: dict[tuple[str, str, str], LedgerLine] = {}
    for line in lines:
        key = line.topic, line.group, line.lane
        before = found.get(key)
        found[key] = line if before is None else _sum(before, line)
    return [found[key] for key in sorted(found)]


def _sum(one: LedgerLine, other: LedgerLine) -> LedgerLine:
    counts = {name: getattr(one, name) + getattr(other, name) for name in COUNTS}
    generation = max(one.generation, other.generation)
    return msgspec.structs.replace(one, **counts, generation=generation, broker_group="")


def merged_groups(groups: Iterable[Group]) -> list[Group]:
    """One entry for each group of each topic (and lane), over all broker groups, by name."""
    found: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.topic, group.name, group.ledger.lane), []).append(group)
    return [merged_group(found[key]) for key in sorted(found)]


def merged_group(groups: Sequence[Group]) -> Group:
    """One group on several broker groups."""
    if len(groups) == 1:
        return groups[0]
    [ledger] = merged_lines(group.ledger for group in groups)
    return msgspec.structs.replace(
        groups[0],
        created_at_ms=min(group.created_at_ms for group in groups),
        ledger=ledger,
        members=merged_consumers(member for group in groups for member in group.members),
        broker_group="",
    )


def merged_consumers(members: Iterable[ConsumerInfo]) -> list[ConsumerInfo]:
    """A consumer joins every broker group; it is one consumer all the same."""
    found: dict[str, ConsumerInfo] = {}
    for member in members:
        before = found.get(member.session)
        if before is not None:
            member = msgspec.structs.replace(
                before,
                in_flight=before.in_flight + member.in_flight,
                joined_at_ms=min(before.joined_at_ms, member.joined_at_ms),
            )
        found[member.session] = member
    return list(found.values())


def differing(groups: Sequence[Group]) -> list[str]:
    """Broker groups on which a group has other settings than on the first one."""
    return [group.broker_group for group in groups if group.settings != groups[0].settings]


def merged_figures(figures: Iterable[GroupFigures]) -> list[GroupFigures]:
    """One entry for each lane, over all broker groups."""
    found: dict[tuple[str, str, str], GroupFigures] = {}
    for each in figures:
        key = each.topic, each.group, each.lane
        before = found.get(key)
        found[key] = each if before is None else _added(before, each)
    return list(found.values())


def _added(one: GroupFigures, other: GroupFigures) -> GroupFigures:
    ages = [each.backlog_ms for each in (one, other) if each.backlog]
    reasons = dict.fromkeys(each.held_back for each in (one, other) if each.held_back)
    return GroupFigures(
        topic=one.topic,
        group=one.group,
        lane=one.lane,
        backlog=one.backlog + other.backlog,
        backlog_ms=-1 if -1 in ages else max(ages, default=0),
        delivered=added_rates([one.delivered, other.delivered]),
        alarm=one.alarm or other.alarm,
        held_back=", ".join(reasons),
    )


def added_rates(rates: Sequence[Rates]) -> Rates:
    return Rates(
        **{name: sum(getattr(each, name) for each in rates) for name in Rates.__struct_fields__}
    )
