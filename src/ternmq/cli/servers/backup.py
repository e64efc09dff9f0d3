"""`tern backup`, `tern restore`, `tern verify`: copies of data directories, taken while they live.

All three work on files of this machine; none needs a node that answers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ternmq.cli.terminal.options import Json
from ternmq.cli.terminal.output import note, say, show_json, show_table, size
from ternmq.core.errors import BadRequest

DataDir = Annotated[
    Path, typer.Argument(metavar="DATA-DIR", help="Of one server, or of all that lie below it.")
]
Place = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or s3://BUCKET/FOLDER.")]


def backup(
    data_dir: DataDir,
    place: Place,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Forget all but so many backups afterwards.")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="At most so many bytes a second: 50MiB.")] = None,
    verify_after: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Read the backup again when it is made.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Copy a data directory while its servers run; only what is new is copied.

    Logs, progress of groups, delayed messages and a SQLite registry, as they are at one moment. A
    registry in PostgreSQL, MariaDB or ZooKeeper is backed up with its own tools, afterwards.
    """
    from ternmq.backup.job import back_up, forget_old
    from ternmq.backup.restore import check_vault
    from ternmq.backup.vault import open_vault
    from ternmq.core.clock import SystemClock
    from ternmq.core.units import parse_size

    vault = open_vault(place)
    with _bar("copying") as progress:
        made = back_up(
            data_dir,
            vault,
            clock=SystemClock(),
            rate=parse_size(rate) if rate else 0,
            progress=progress,
        )
    problems: list[str] = []
    if verify_after:
        with _bar("reading it again") as progress:
            problems = check_vault(vault, made.name, progress=progress)
    gone = forget_old(vault, keep, data_dir) if keep is not None and not problems else 0
    if as_json:
        fields = {"name": made.name, "files": made.files, "size": made.size, "copied": made.copied}
        show_json({**fields, "forgotten": gone, "problems": problems})
    else:
        say(
            f"backup {made.name}: {made.files} files, {size(made.size)}, "
            f"{size(made.copied)} new" + (f", {gone} old one(s) forgotten" if gone else "")
        )
    _fail(problems)


def restore(
    place: Place,
    data_dir: Annotated[Path, typer.Argument(metavar="DATA-DIR", help="New, or empty.")],
    at: Annotated[
        str | None, typer.Option(help="The newest backup at or before this time (UTC).")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Of which data directory, where there are several.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only show which there are.")] = False,
    as_json: Json = False,
) -> None:
    """Put a backup back as a data directory, and check every log in it.

    Start servers on it as they were started on the old one. What was sent after the backup is not
    in it; what was acknowledged after it is delivered again.
    """
    from ternmq.backup.job import backups, read_manifest
    from ternmq.backup.manifest import name_of
    from ternmq.backup.restore import choose
    from ternmq.backup.restore import restore as put_back
    from ternmq.backup.vault import open_vault
    from ternmq.backup.verify import verify as read_logs
    from ternmq.cli.terminal.times import parse_when

    vault = open_vault(place)
    if list_only:
        found = [(name, read_manifest(vault, name)) for name in backups(vault)]
        if as_json:
            show_json(
                [{"name": name, "size": one.size, "source": one.source} for name, one in found]
            )
        else:
            rows = [(name, size(one.size), len(one.files), one.source) for name, one in found]
            show_table(["name", "#size", "#files", "source"], rows)
        return
    when = parse_when(at)
    moment = None if when is None else name_of(int(when.timestamp() * 1000))
    name = choose(vault, moment, source)
    with _bar("copying") as progress:
        manifest = put_back(vault, name, data_dir, progress=progress)
    with _bar("checking") as progress:
        logs = read_logs(data_dir, progress=progress)
    problems = [f"{log.path}: {each}" for log in logs for each in log.problems]
    if as_json:
        show_json({"name": name, "size": manifest.size, "problems": problems})
    else:
        say(f"restored {name} of {manifest.source}: {size(manifest.size)}")
        note(f"start its servers with --data-dir {data_dir}")
    _fail(problems)


def verify(
    data_dir: Annotated[
        str, typer.Argument(metavar="DIR", help="A data directory, or a place with backups.")
    ],
    as_json: Json = False,
) -> None:
    """Read every record of every log, or every byte of the newest backup, and say what is wrong.

    Of a stopped server, a restored directory, or a place with backups. Changes nothing.
    """
    from ternmq.backup.job import backups
    from ternmq.backup.restore import check_vault
    from ternmq.backup.vault import open_vault
    from ternmq.backup.verify import verify as read_logs

    vault = open_vault(data_dir)
    names = backups(vault)
    if names:
        with _bar("reading") as progress:
            problems = check_vault(vault, names[-1], progress=progress)
        if as_json:
            show_json({"backup": names[-1], "problems": problems})
        elif not problems:
            say(f"backup {names[-1]} is whole; {len(names)} backup(s) are here")
        _fail(problems)
        return
    with _bar("reading") as progress:
        logs = read_logs(Path(data_dir), progress=progress)
    if not logs:
        raise BadRequest(f"{data_dir} holds no log of a TernMQ server")
    problems = [f"{log.path}: {each}" for log in logs for each in log.problems]
    if as_json:
        show_json(
            [
                {
                    "log": log.path,
                    "records": log.records,
                    "size": log.size,
                    "torn": log.torn,
                    "problems": list(log.problems),
                }
                for log in logs
            ]
        )
    else:
        rows = [(log.path, log.records, size(log.size), _state(log)) for log in logs]
        show_table(["log", "#records", "#size", "state"], rows)
    _fail(problems)


def _state(log: Any) -> str:
    if log.problems:
        return "damaged"
    return f"ok; its last {log.torn} bytes are cut at a start" if log.torn else "ok"


def _fail(problems: list[str]) -> None:
    for problem in problems:
        note(f"error: {problem}")
    if problems:
        raise typer.Exit(1)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Hears how far it is; shown on a terminal only."""
    import sys

    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
