"""A commit over several broker groups, with drivers that die between any two of its steps (P2)."""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ternmq.client.transactions.detached import DetachedEnding
from ternmq.core.errors import TransactionEnded, TransactionNotFound, Unavailable
from ternmq.pipeline.cluster import ClusterView
from ternmq.pipeline.sink import commit
from ternmq.pipeline.sink.stage import TaskDone

GROUPS = ["a", "b", "c"]


class Died(Exception):
    """The driver, at this step."""


@dataclass
class Group:
    """What a broker group knows of one name (`broker/transactions/unfenced_attempts.py`)."""

    staged: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    decided: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)

    def commit(self, attempts: list[int], elsewhere: list[int]) -> DetachedEnding:
        repeated = bool(self.decided)
        if not repeated:
            counting = attempts + elsewhere
            if self.gone & set(counting):
                raise TransactionEnded("gone", state="rolled_back")
            if not set(attempts) <= self.staged:
                raise TransactionNotFound("not known here")
            self.decided = counting
            self.published = [at for at in counting if at in self.staged]
            self.staged = set()
        return DetachedEnding(
            state="committed", attempts=self.decided, placed=[], repeated=repeated
        )

    def abort(self, attempts: list[int], elsewhere: list[int]) -> DetachedEnding:
        if not self.decided:
            self.gone |= set(attempts or self.staged) | set(elsewhere)
            self.staged -= self.gone
        return self.look()

    def look(self) -> DetachedEnding:
        state = "committed" if self.decided else "open"
        return DetachedEnding(state=state, attempts=self.decided, placed=[], repeated=False)


class Model:
    """A cluster whose driver may die before or after any request."""

    def __init__(self, dice: random.Random, groups: list[str]) -> None:
        self.dice = dice
        self.groups = {name: Group() for name in groups}
        self.danger = 0.0

    def _ask(self, group: str, verb: str, *given: Any) -> DetachedEnding:
        if self.dice.random() < self.danger:
            raise Died
        answer: DetachedEnding = getattr(self.groups[group], verb)(*given)
        if self.dice.random() < self.danger:
            raise Died
        return answer

    def commit(self, name: str, group: str, own: list[int], others: list[int]) -> DetachedEnding:
        return self._ask(group, "commit", own, others)

    def abort(self, name: str, group: str, own: list[int], others: list[int]) -> DetachedEnding:
        return self._ask(group, "abort", own, others)

    def look(self, name: str, group: str) -> DetachedEnding:
        return self._ask(group, "look")


def run(model: Model, dice: random.Random, partitions: int) -> list[TaskDone]:
    """The tasks of one run: as `TaskWriter` does it, on groups that may differ from run to run."""
    names = sorted(model.groups)
    tasks = []
    for partition in range(partitions):
        group = dice.choice(names)
        task = TaskDone("query:7", names, partition, group)
        if model.groups[names[0]].decided or model.groups[group].decided:
            task.committed = True
        else:
            task.attempts, task.rows = [dice.getrandbits(32)], 10
            model.groups[group].staged.update(task.attempts)
        tasks.append(task)
    return tasks


@pytest.mark.parametrize("seed", range(200))
def test_every_partition_is_published_once_however_often_drivers_die(seed: int) -> None:
    dice = random.Random(seed)
    partitions = dice.randint(1, 6)
    model = Model(dice, GROUPS[: dice.randint(1, 3)])
    owner: dict[int, tuple[int, int]] = {}
    for number in range(dice.randint(1, 5)):
        if number == 2 and dice.random() < 0.5:
            model.groups.setdefault("0", Group())  # A new first one: it would decide from now on.
        tasks = run(model, dice, partitions)
        owner |= {at: (number, task.partition) for task in tasks for at in task.attempts}
        model.danger = 0.2
        try:
            commit.commit(cast(ClusterView, model), tasks)
        except Died:
            if dice.random() < 0.5:
                with suppress(Died):
                    commit.abort(cast(ClusterView, model), tasks)
        model.danger = 0.0
    commit.commit(cast(ClusterView, model), run(model, dice, partitions))

    published = [at for group in model.groups.values() for at in group.published]
    runs = {owner[at][0] for at in published if at in owner}
    assert len(published) == partitions
    assert len(runs) <= 1, "all rows are of one run"
    if runs:
        assert sorted(owner[at][1] for at in published) == list(range(partitions))


def test_groups_that_changed_under_way_are_no_commit() -> None:
    model = Model(random.Random(1), ["a", "b"])
    tasks = [TaskDone("q:1", ["a", "b"], 0, "a", [1]), TaskDone("q:1", ["b"], 1, "b", [2])]

    with pytest.raises(Unavailable, match="written again"):
        commit.commit(cast(ClusterView, model), tasks)


def test_nothing_staged_is_nothing_to_commit_or_abort() -> None:
    model = Model(random.Random(1), ["a"])
    model.danger = 1.0

    assert commit.commit(cast(ClusterView, model), [TaskDone("q:1", ["a"], 0, "a")]) == 0
    commit.abort(cast(ClusterView, model), [])
