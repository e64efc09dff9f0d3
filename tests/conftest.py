"""What every test has: a log that nobody has configured yet, whoever ran before in this process.

With several processes (`make test`), `scheduling.py` says who runs what.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """`capture_logs` and commands that run in process leave structlog configured."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.scheduling import LongFilesFirst

    return LongFilesFirst(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only with several processes: alone, tests run as they are listed."""
    if hasattr(config, "workerinput"):
        from tests.scheduling import by_kind

        items.sort(key=by_kind)
