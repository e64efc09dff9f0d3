"""`tern backup`, `tern restore`, `tern verify`: copies of data directories, taken while they live.

All three work on files of this machine; none needs a node that answers.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import Json
from ternmq.cli.terminal.output import note, say, show_json, show_table, size
from ternmq.cli.terminal.progress import byte_bar
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.backup.verify import VerifiedLog

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
    from ternmq.backup.backup_store import open_backup_store
    from ternmq.backup.job import back_up, forget_old
    from ternmq.backup.restore import check_vault
    from ternmq.core.clock import SystemClock
    from ternmq.core.units import parse_size

    vault = open_backup_store(place)
    with byte_bar("copying") as progress:
        made = back_up(
            data_dir,
            vault,
            clock=SystemClock(),
            rate=parse_size(rate) if rate else 0,
            progress=progress,
        )
    problems: list[str] = []
    if verify_after:
        with byte_bar("reading it again") as progress:
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
        str | None, typer.Option(help="As everything was at this time (UTC), between two backups.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="With --at: the newest backup before it, as it is.")
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="Of which data directory, where there are several.")
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only show which there are.")] = False,
    as_json: Json = False,
) -> None:
    """Put a backup back as a data directory, and check every log in it.

    Start servers on it as they were started on the old one. What was sent after the backup, or
    after --at, is not in it; what was acknowledged after it is delivered again.
    """
    from ternmq.backup.backup_store import open_backup_store
    from ternmq.backup.job import manifests
    from ternmq.backup.manifest import name_of
    from ternmq.backup.restore import choose, next_after
    from ternmq.backup.restore import restore as put_back
    from ternmq.backup.roll_forward import Forward
    from ternmq.backup.verify import verify as read_logs
    from ternmq.cli.terminal.times import parse_when

    vault = open_backup_store(place)
    if list_only:
        found = manifests(vault)
        if as_json:
            show_json(
                [{"name": one.made_at, "size": one.size, "source": one.source} for one in found]
            )
        else:
            rows = [(one.made_at, size(one.size), len(one.files), one.source) for one in found]
            show_table(["name", "#size", "#files", "source"], rows)
        return
    when = parse_when(at)
    at_ms = 0 if when is None else int(when.timestamp() * 1000)
    moment = None if when is None else name_of(at_ms)
    manifest = choose(vault, moment, source)
    later = None if moment is None or whole else next_after(vault, manifest, moment)
    forward = None if later is None else Forward(at_ms=at_ms, later=later)
    with byte_bar("copying") as progress:
        put_back(vault, manifest, data_dir, forward=forward, progress=progress)
    with byte_bar("checking") as progress:
        logs = read_logs(data_dir, progress=progress)
    problems = _problems(logs)
    reached = manifest.made_at if forward is None else moment
    if as_json:
        fields = {"name": manifest.made_at, "size": manifest.size, "problems": problems}
        show_json({**fields, "at": reached})
    else:
        say(f"restored {manifest.made_at} of {manifest.source}: {size(manifest.size)}")
        if later is not None:
            say(f"brought forward to {reached} with the logs of {later.made_at}")
        elif at is not None and not whole:
            note("no later backup has what came after it: this is the newest one")
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
    from ternmq.backup.backup_store import open_backup_store
    from ternmq.backup.job import backups
    from ternmq.backup.restore import check_vault
    from ternmq.backup.verify import verify as read_logs

    vault = open_backup_store(data_dir)
    names = backups(vault)
    if names:
        with byte_bar("reading") as progress:
            problems = check_vault(vault, names[-1], progress=progress)
        if as_json:
            show_json({"backup": names[-1], "problems": problems})
        elif not problems:
            say(f"backup {names[-1]} is whole; {len(names)} backup(s) are here")
        _fail(problems)
        return
    with byte_bar("reading") as progress:
        logs = read_logs(Path(data_dir), progress=progress)
    if not logs:
        raise BadRequest(f"{data_dir} holds no log of a TernMQ server")
    problems = _problems(logs)
    if as_json:
        show_json([{"log": log.pop("path"), **log} for log in map(asdict, logs)])
    else:
        rows = [(log.path, log.records, size(log.size), _state(log)) for log in logs]
        show_table(["log", "#records", "#size", "state"], rows)
    _fail(problems)


def _problems(logs: "list[VerifiedLog]") -> list[str]:
    return [f"{log.path}: {problem}" for log in logs for problem in log.problems]


def _state(log: "VerifiedLog") -> str:
    if log.problems:
        return "damaged"
    return f"ok; its last {log.torn} bytes are cut at a start" if log.torn else "ok"


def _fail(problems: list[str]) -> None:
    for problem in problems:
        note(f"error: {problem}")
    if problems:
        raise typer.Exit(1)
