"""A machine without what only servers install and only Linux has: hidden before ternmq is imported.

`python -m pytest -p tests.portable_machine …` runs tests as a small installation of the client
would, on a system such as macOS; programs of tests call `hide()` first of all. Packages are hidden
by a finder that says they are not there, abilities of the system by taking their names away.
"""

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGES = ("lz4", "prometheus_client", "rich", "sqlalchemy", "structlog", "typer", "uvloop")
ABILITIES = ("RWF_NOWAIT", "fdatasync", "posix_fallocate")


class _NotInstalled:
    """Finds none of these packages, and says so."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> None:
        del path, target
        if name.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(packages: Sequence[str] = PACKAGES, abilities: Sequence[str] = ABILITIES) -> None:
    """From now on they are not there."""
    sys.meta_path.insert(0, _NotInstalled(packages))
    for name in packages:
        assert name not in sys.modules, f"{name} is imported already"
    for name in abilities:
        if hasattr(os, name):
            delattr(os, name)


def pytest_load_initial_conftests() -> None:
    """As a plugin: tests themselves use the others."""
    hide(["uvloop"])
