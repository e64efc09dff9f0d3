"""The progress bar of a Spark job: how far it is, and how many of Spark's tasks are done.

Where the job knows how much there is (messages, days) the bar counts that; else it counts tasks. A
thread asks Spark's status tracker a few times a second. Nothing at all is shown, and nothing asked,
when stderr is not a terminal.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, TaskID

REFRESH_S = 0.3


class TaskCount:
    """Tasks of all stages that were seen, done and in all; never goes back."""

    def __init__(self) -> None:
        self._stages: dict[int, tuple[int, int]] = {}

    def saw(self, stage: int, done: int, tasks: int) -> None:
        self._stages[stage] = (done, tasks)

    def over(self, active: set[int]) -> None:
        """Stages that are not active any more are done."""
        for stage, (_, tasks) in self._stages.items():
            if stage not in active:
                self._stages[stage] = (tasks, tasks)

    @property
    def done(self) -> int:
        return sum(done for done, _ in self._stages.values())

    @property
    def tasks(self) -> int:
        return sum(tasks for _, tasks in self._stages.values())


@contextmanager
def job_bar(
    spark: "SparkSession", what: str, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; yields what is called with how much of `total` is done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[spark]}"),
    )
    over = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(what, total=total, spark="")
        watch = threading.Thread(
            target=_watch, args=(spark, bar, shown, total is None, over), daemon=True
        )
        watch.start()
        try:
            yield lambda done: bar.update(shown, completed=done)
        finally:
            over.set()
            watch.join()


def _watch(
    spark: "SparkSession", bar: "Progress", shown: "TaskID", counts: bool, over: threading.Event
) -> None:
    """Look at Spark until the job is over; a JVM that is gone ends it too."""
    seen = TaskCount()
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(REFRESH_S):
        try:
            active = set(tracker.getActiveStageIds())
            for stage in active:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen.saw(stage, info.numCompletedTasks, info.numTasks)
        except Exception:  # Whatever is wrong, the job itself says it.
            return
        seen.over(active)
        if counts:
            bar.update(shown, completed=seen.done, total=seen.tasks or None)
        else:
            bar.update(shown, spark=f"{seen.done} of {seen.tasks} Spark tasks")
