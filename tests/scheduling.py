"""Which of two processes runs which tests, and in what order: whole files, the long ones first.

Everything with Spark is one piece of work: a second Spark in the second process would take half a
minute to start and fight for the same cores. Simulations and integration tests come before unit
tests, so that what is left at the end are short files and no core is idle for long.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

SPARK = "tests/integration/pipeline/"
ORDER = (SPARK, "tests/simulation/", "tests/integration/", "tests/")


class LongFilesFirst(LoadFileScheduling):  # type: ignore[misc]
    """Files as pieces of work, those with Spark as one."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # By number of tests; here by their kind.

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if file.startswith(SPARK) else file


def by_kind(item: pytest.Item) -> int:
    """Sorts tests; those of one kind stay in their order."""
    return next(
        (rank for rank, folder in enumerate(ORDER) if item.nodeid.startswith(folder)), len(ORDER)
    )
