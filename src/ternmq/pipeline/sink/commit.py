"""What the driver does with staged rows: publish exactly the tasks that count, or forget them.

One broker group decides, the first by name; it remembers which attempts count on the others. So a
driver that dies on its way is no harm: whoever runs the micro-batch again finds it decided and
finishes the commit where it is missing. An abort asks the deciding group first and leaves alone
what is published: Spark aborts also when a commit was done and only its answer was lost.
"""

from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from ternmq.core.errors import TernError, TransactionEnded, TransactionNotFound, Unavailable
from ternmq.core.log import get_logger
from ternmq.pipeline.cluster import STAGED_S, ClusterView
from ternmq.pipeline.sink.stage import TaskDone

log = get_logger()

TaskAttempts = dict[str, list[int]]


def tasks_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskDone]:
    """The tasks that were finished, in the order of their partitions."""
    found = [message for message in messages if isinstance(message, TaskDone)]
    return sorted(found, key=lambda task: task.partition)


def commit(cluster: ClusterView, tasks: list[TaskDone]) -> int:
    """Publish these tasks' rows, or what was decided before; returns how many rows that are."""
    if not any(task.attempts or task.committed for task in tasks):
        return 0
    name, groups = tasks[0].name, tasks[0].groups
    if any((task.name, task.groups) != (name, groups) for task in tasks):
        raise Unavailable(
            f"the broker groups changed while {name} was written: it is written again"
        )
    own = _by_group(tasks)
    decided = _decided(cluster, name, groups)
    if not decided:
        if not own:
            return 0  # One group, which has told the tasks that all is done.
        home = groups[0]
        elsewhere = [at for group in groups[1:] for at in own.get(group, [])]
        try:
            ending = cluster.commit(name, home, own.get(home, []), elsewhere)
        except (TransactionEnded, TransactionNotFound) as error:
            raise Unavailable(
                f"the staged rows of {name} are gone: they wait {STAGED_S / 3600:g} h for their "
                f"commit, unless they are rolled back; run it again to write them ({error.message})"
            ) from error
        decided = ending.attempts
        if not ending.repeated:
            for group in groups[1:]:
                if group in own:
                    others = [at for at in decided if at not in own[group]]
                    cluster.commit(name, group, own[group], others)
            return sum(task.rows for task in tasks)
    if len(groups) > 1:
        for group in groups:
            cluster.commit(name, group, [], decided)
    return 0


def abort(cluster: ClusterView, tasks: list[TaskDone], name: str = "") -> None:
    """Forget what is staged under a name, unless it is published; what cannot be reached expires.

    Also what tasks left that failed, of which no message tells. Only those tell a stream's name:
    what is left if all failed goes when the micro-batch is committed after all, or expires.
    """
    name = name or (tasks[0].name if tasks else "")
    if not name:
        return
    try:
        groups = tasks[0].groups if tasks else sorted(cluster.broker_groups())
        named = [attempt for task in tasks for attempt in task.attempts]
        for group in groups:
            if cluster.abort(name, group, [], named).state == "committed":
                return
    except TernError as error:
        log.warning("an aborted write is left to expire", name=name, reason=error.message)


def _by_group(tasks: list[TaskDone]) -> TaskAttempts:
    found: TaskAttempts = {}
    for task in tasks:
        if task.attempts:
            found.setdefault(task.group, []).extend(task.attempts)
    return found


def _decided(cluster: ClusterView, name: str, groups: list[str]) -> list[int]:
    """What was decided before; with several groups the deciding one may have been another then."""
    if len(groups) == 1:
        return []  # The commit itself says so.
    for group in groups:
        ending = cluster.look(name, group)
        if ending.state == "committed":
            return ending.attempts
    return []
