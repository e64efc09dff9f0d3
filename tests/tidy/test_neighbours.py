"""A module that one folder alone imports lives in that folder (or in a room of it).

A room below its importer is at home: a package is put together in the folder above its rooms. What
one *other* folder imports is either misplaced or a door, through which that folder uses a whole
room. Doors are named here, each with its reason; the lists only shrink.
"""

import ast
from collections import defaultdict
from itertools import chain
from pathlib import Path

from tests.tidy.source import PACKAGE, Module, modules, settled

AWAY_FROM_ITS_IMPORTER = {
    "A server; `node` makes it a process.": {"broker/server", "delay/server", "meta/server"},
    "A process; `tern` starts it.": {
        "console/process",
        "gateway/process",
        "node/broker_process",
        "node/delay_process",
        "node/meta_process",
    },
    "A job over what its package keeps; `tern` runs it.": {
        "backup/restore",
        "pipeline/archive/job",
        "pipeline/archive/repair",
        "pipeline/archive/search",
        "pipeline/jobs/dead_letters",
        "pipeline/jobs/live_trace",
        "pipeline/jobs/replay",
        "pipeline/jobs/trace",
    },
    "Beside what it is made of; whoever elects who runs something uses it.": {
        "client/documents/leases",
    },
    "The door of its room: the rest of the room is used through it.": {
        "meta/registries/url",
        "pipeline/sink/sink",
        "replication/following/leader_link",
        "rpc/http2/call_server",
        "wire/decoder",
    },
    "Reads what its room writes, so the two change together.": {
        "batch/arrow",
        "pipeline/archive/reader",
    },
    "Calls of `mq.admin` that only look, in a room of their own: its folder is full.": {
        "client/inspection/figures",
        "client/inspection/sessions",
    },
    "Pure, for whoever shows a message; the console imports it, too.": {
        "client/inspection/explain",
    },
    "Applications import it by this name.": {"inbox/migrations"},
    "Settings stand with the part that they are of.": {"security/tls/config"},
}


def test_a_module_with_one_importer_lives_beside_it() -> None:
    allowed = set(chain.from_iterable(AWAY_FROM_ITS_IMPORTER.values()))

    assert not settled(away_from_their_importer(), allowed=allowed)


def away_from_their_importer() -> list[str]:
    """Modules whose importers are all in one folder, and that is neither theirs nor one above."""
    sources = {module.dotted: module for module in modules() if module.name.startswith("src/")}
    importers: dict[str, set[Path]] = defaultdict(set)
    for name, module in sources.items():
        for imported in imports_of(module) & sources.keys() - {name}:
            importers[imported].add(module.path.parent)
    return [
        sources[name].path.relative_to(PACKAGE).with_suffix("").as_posix()
        for name, folders in importers.items()
        if len(folders) == 1
        and sources[name].path.stem != "__init__"
        and not sources[name].path.is_relative_to(*folders)
    ]


def imports_of(module: Module) -> set[str]:
    """The dotted names that a module imports, also those of names inside modules."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found.add(node.module or "")
    return found
