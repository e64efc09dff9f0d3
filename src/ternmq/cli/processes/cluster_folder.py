"""What the folder of a local cluster says: which shape it was started in, who was here before.

The shape is kept (`cluster.json`), so that a cluster that is started again is the one that it was;
it may grow, and never lose a server that holds messages. Reads and writes that file alone, whole or
not at all; what is planned from it: `cluster_plan`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from ternmq.cli.processes.cluster_plan import TLS_FOLDER, Planned, Shape
from ternmq.core.errors import BadConfig

SHAPE_FILE = "cluster.json"


def in_waves(servers: Sequence[Planned], folder: Path) -> list[list[Planned]]:
    """Members that have been here before start first: what they hold is what there is, and of a
    group that the registry does not know yet the first member leads."""
    known = [each for each in servers if (folder / each.name).exists()]
    return [known, [each for each in servers if each not in known]]


def settle_shape(folder: Path, **wanted: int | None) -> Shape:
    """What was asked for, else what the cluster in this folder was, else the default.

    What holds messages never becomes fewer: that would leave them behind.
    """
    before = _read_shape(folder / SHAPE_FILE)
    known = asdict(before or Shape())
    shape = Shape(**(known | {name: count for name, count in wanted.items() if count is not None}))
    for name in ("groups", "replicas", "delays"):
        if before is not None and getattr(shape, name) < getattr(before, name):
            raise BadConfig(
                f"the cluster in {folder} has --{name} {getattr(before, name)}, and they hold "
                f"messages: start it with as many, or choose another folder with --data-dir"
            )
    return shape


def is_secured(folder: Path) -> bool:
    """Was this cluster started with certificates (`cluster_tls`) before?"""
    return (folder / TLS_FOLDER / "ca.pem").exists()


def keep_shape(folder: Path, shape: Shape) -> None:
    """Remember it; whole or not at all."""
    beside = folder / f"{SHAPE_FILE}.new"
    try:
        beside.write_text(json.dumps(asdict(shape)) + "\n", encoding="utf-8")
        beside.replace(folder / SHAPE_FILE)
    except OSError as error:
        raise BadConfig(f"cannot write {folder / SHAPE_FILE}: {error.strerror}") from error


def _read_shape(path: Path) -> Shape | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Shape(**{item.name: int(found[item.name]) for item in fields(Shape)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadConfig(
            f"{path} does not say what the cluster is made of ({error}); remove it and give "
            "--groups and --replicas as they were"
        ) from error
