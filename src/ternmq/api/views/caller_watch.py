"""The shared look at the cluster, as one caller may see it.

The watch looks once a second as the console's own user, for everybody. What one caller may not see
is left out here, by the same rules by which servers leave it out of lists
(`rpc/guarded/answer_filter.py`); each snapshot is narrowed once per caller, however many pages it
has.
"""

from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import replace as changed

from ternmq.api.caller_rights import CallerRights
from ternmq.api.views.sampled_figures import sums_of
from ternmq.api.views.snapshot import FlowPoint, GroupView, Snapshot, TopicView
from ternmq.api.views.watch import LooksShared


class CallerWatch:
    """One caller's; implements `LooksShared`."""

    def __init__(self, watch: LooksShared, rights: CallerRights) -> None:
        self._watch = watch
        self._rights = rights
        self._whole: Snapshot | None = None
        self._version = -1
        self._seen: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot:
        whole = self._watch.snapshot
        if self._seen is None or self._whole is not whole or self._version != self._rights.version:
            self._seen = seen_by(whole, self._rights)
            self._whole, self._version = whole, self._rights.version
        return self._seen

    def wanted(self) -> None:
        self._watch.wanted()

    def shows(self, groups: Iterable[GroupView] = (), topics: Iterable[TopicView] = ()) -> None:
        self._watch.shows(groups, topics)

    async def after(self, number: int) -> Snapshot:
        await self._watch.after(number)
        return self.snapshot

    async def fresh(self) -> Snapshot:
        await self._watch.fresh()
        return self.snapshot


def seen_by(whole: Snapshot, rights: CallerRights) -> Snapshot:
    """Without what this caller may not see."""
    found = whole
    if not rights.runs_cluster:  # Where things lie on a machine is nobody's business.
        found = replace(
            found,
            servers=[replace(each, pid=0) for each in found.servers],
            statuses=[changed(each, data_dir="", registry="", pid=0) for each in found.statuses],
        )
    if not rights.delays():
        found = replace(found, delayed=0, horizon=())
    if rights.sees_all:
        return found
    topics = {name: view for name, view in found.topics.items() if rights.sees(name)}
    groups = {key: view for key, view in found.groups.items() if rights.sees(key[0])}
    now = FlowPoint(
        at_ms=found.at_ms,
        rate_in=sum(view.rate_in for view in topics.values()),
        rate_out=sum(view.rate_out for view in groups.values()),
    )
    senders = {pair: rate for pair, rate in found.senders.items() if rights.sees(pair[1])}
    return replace(
        found, topics=topics, groups=groups, senders=senders, flow=(now,), sums=sums_of(groups)
    )
