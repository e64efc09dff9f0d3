"""Notices that Python files under a folder changed, by looking at them: for `tern run --reload`.

A look is one walk over names, sizes and times; hidden folders and those of environments and caches
are left out. It says which file it was and reads none of them.
"""

import os
from pathlib import Path

SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv"}
FILES_MAX = 20_000

SourceTimes = dict[str, tuple[int, int]]


def look(folder: Path) -> SourceTimes:
    """Every Python file with its time and size."""
    found: SourceTimes = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and name[0] != "."]
        for name in names:
            if name.endswith(".py") and len(found) < FILES_MAX:
                path = Path(place, name)
                try:
                    state = path.stat()
                except OSError:
                    continue  # Gone in between.
                found[str(path)] = (state.st_mtime_ns, state.st_size)
    return found


def changed(before: SourceTimes, after: SourceTimes) -> list[str]:
    """The files that are new, gone or different; pure."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
