"""What every test has: a log that nobody has configured yet, whoever ran before in this process."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def unconfigured_log() -> Iterator[None]:
    """`capture_logs` and commands that run in process leave structlog configured."""
    yield
    structlog.reset_defaults()
