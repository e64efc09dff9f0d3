"""The files of an archive, on a local disk or wherever pyarrow reaches (S3, GCS …).

    _tern/archive.json              what this folder is
    _tern/commits/<20 digits>.json  the commit log
    _tern/staging/                  written, not committed yet
    messages|deliveries/topic=T/date=D/*.parquet

A file is staged first and moved to its place after its commit, so that whoever lists the folders
sees every row at most once at any moment; a job that died in between is finished by the next one.
On a local disk a commit is created exclusively. Object stores cannot do that here: two jobs that
commit the same number at the same moment overwrite each other, and the one that lost finds out by
reading the log again before its next step; no row is lost or doubled by it.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyarrow import fs

from ternmq.core.errors import BadRequest, Corrupt
from ternmq.pipeline.archive.log import (
    SCHEMA_VERSION,
    ArchivedFile,
    ArchiveState,
    Commit,
    decode,
    encode,
)

CONTROL = "_tern"
COMMITS = f"{CONTROL}/commits"
STAGING = f"{CONTROL}/staging"
HEADER = f"{CONTROL}/archive.json"
TRIES = 100
"""Of a commit that others are ahead of, each time."""


class ArchiveHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder says about itself."""

    format: str = "ternmq-archive"
    version: int = SCHEMA_VERSION
    cluster: str = ""


class ArchiveStore:
    """Reads and writes one archive."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._fs, self._root = _located(target)
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    @property
    def is_local(self) -> bool:
        return self._local

    @property
    def filesystem(self) -> fs.FileSystem:
        return self._fs

    def absolute(self, path: str) -> str:
        return f"{self._root}/{path}"

    # Beginning

    def prepare(self, cluster: str) -> None:
        """Make an archive, or check that this is one, of this cluster."""
        with _archive_errors(f"cannot write to {self.target}"):
            header = self._read(HEADER)
            if header is None:
                if set(self._names("")) - {CONTROL}:  # A job may have died right here.
                    raise BadRequest(
                        f"{self.target} is neither empty nor an archive; choose another folder"
                    )
                for folder in (COMMITS, STAGING):
                    self._fs.create_dir(self.absolute(folder), recursive=True)
                made = msgspec.json.encode(ArchiveHeader(cluster=cluster))
                if self.create(HEADER, made):
                    return
                header = self._read(HEADER) or b""  # Another job was first.
        found = _header(self.target, header)
        if cluster and found.cluster and found.cluster != cluster:
            raise BadRequest(
                f"{self.target} is the archive of cluster {found.cluster}, this is {cluster}; "
                "choose another folder"
            )

    def check(self) -> ArchiveHeader:
        """Refuse a folder that is no archive."""
        with _archive_errors(f"cannot read {self.target}"):
            header = self._read(HEADER)
        if header is None:
            raise BadRequest(f"there is no archive at {self.target}")
        return _header(self.target, header)

    # The log

    def load(self, state: ArchiveState | None = None) -> ArchiveState:
        """The archive as it is now; given a state, only what came after it is read."""
        whole = state is None or state.number == 0
        state = self._follow(state or ArchiveState())
        if whole and (last := max(self._numbers(), default=0)) > state.number:
            state = self._follow(state)  # Perhaps another job made it just now.
            if last > state.number:
                path = self.absolute(_commit_path(state.number + 1))
                raise Corrupt(f"{path} is missing, and later commits are there; bring it back")
        return state

    def _follow(self, state: ArchiveState) -> ArchiveState:
        while (data := self._read(_commit_path(state.number + 1))) is not None:
            try:
                state.add(decode(data))
            except msgspec.DecodeError as error:
                path = _commit_path(state.number + 1)
                raise Corrupt(f"{self.absolute(path)} cannot be read: {error}") from error
        return state

    def commit(self, state: ArchiveState, commit: Commit) -> bool:
        """Make a step durable; False when another job made one first, or this one is void."""
        path = _commit_path(commit.number)
        if self._local:
            if not _create(Path(self.absolute(path)), encode(commit)):
                return False
        elif self._read(path) is not None:
            return False
        else:
            self._write(path, encode(commit))
            written = self._read(path)
            if written is None or decode(written).job != commit.job:
                return False
        return state.add(commit)

    def commit_next(self, state: ArchiveState, commit: Commit) -> bool:
        """Commit after whatever others did meanwhile that does not concern this step."""
        for _ in range(TRIES):
            self.load(state)
            step = msgspec.structs.replace(commit, number=state.number + 1)
            if not state.allows(step):
                return False
            if self.commit(state, step):
                return True
        return False

    def _numbers(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self._names(COMMITS)]
        return [int(name) for name in names if name.isdecimal()]

    # Notes of other jobs

    def read(self, path: str) -> bytes | None:
        """A small file below the archive's root; None if there is none."""
        with _archive_errors(f"cannot read {self.target}"):
            return self._read(path)

    def create(self, path: str, data: bytes) -> bool:
        """Write one that is not there yet; False if it is."""
        with _archive_errors(f"cannot write to {self.target}"):
            self._fs.create_dir(self.absolute(path).rpartition("/")[0], recursive=True)
            if self._local:
                return _create(Path(self.absolute(path)), data)
            if self._read(path) is not None:
                return False
            self._write(path, data)
            return True

    # Files

    def new_staged(self) -> str:
        """A path for a file that is being written."""
        return f"{STAGING}/{secrets.token_hex(16)}.parquet"

    def place(self, file: ArchivedFile) -> None:
        """Bring a committed file from staging to its place; done already is no error."""
        source, target = self.absolute(staged_path(file.path)), self.absolute(file.path)
        if self._exists(source):
            self._fs.create_dir(target.rpartition("/")[0], recursive=True)
            self._fs.move(source, target)

    def finish(self, state: ArchiveState) -> None:
        """Place what earlier jobs committed and did not place; drop what nobody committed."""
        staged = {name.rpartition("/")[2]: name for name in self._names(STAGING)}
        for file in state.files.values():
            name = file.path.rpartition("-")[2]
            if name in staged:
                self.place(file)
                del staged[name]

    def drop_staged(self, state: ArchiveState, older_than_s: float, now_s: float) -> int:
        """Remove staged files of jobs that died; returns how many."""
        committed = {staged_path(path) for path in state.files}
        selector = fs.FileSelector(self.absolute(STAGING), allow_not_found=True)
        dropped = 0
        for info in self._fs.get_file_info(selector):
            path = f"{STAGING}/{info.base_name}"
            old = info.mtime is not None and info.mtime.timestamp() < now_s - older_than_s
            if old and path not in committed:
                self._fs.delete_file(info.path)
                dropped += 1
        return dropped

    def delete(self, path: str) -> None:
        """A file that a commit removed; gone already is no error."""
        if self._exists(self.absolute(path)):
            self._fs.delete_file(self.absolute(path))

    def present(self, file: ArchivedFile) -> str:
        """Where a committed file is now: at its place, or still staged."""
        placed = self.absolute(file.path)
        return placed if self._exists(placed) else self.absolute(staged_path(file.path))

    def _exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type == fs.FileType.File)

    def _names(self, folder: str) -> list[str]:
        path = self.absolute(folder).rstrip("/")
        found = self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info.base_name for info in found]

    def _read(self, path: str) -> bytes | None:
        if not self._exists(self.absolute(path)):
            return None
        with self._fs.open_input_stream(self.absolute(path)) as stream:
            return bytes(stream.read())

    def _write(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(self.absolute(path)) as stream:
            stream.write(data)


def file_path(kind: str, topic: str, date: str, name: str) -> str:
    """Where a file lies: folders that every Parquet reader takes for columns."""
    return f"{kind}/topic={quote(topic, safe='')}/date={date}/{name}"


def staged_path(path: str) -> str:
    """Where a file lies before its commit: its name ends with the name it was staged under."""
    return f"{STAGING}/{path.rpartition('-')[2]}"


def _commit_path(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"


def _located(target: str) -> tuple[fs.FileSystem, str]:
    if not target.strip():
        raise BadRequest("say where the archive is: a folder, or a url such as s3://bucket/path")
    if "://" not in target:
        return fs.LocalFileSystem(), str(Path(target).absolute())
    try:
        filesystem, root = fs.FileSystem.from_uri(target)
    except (pa.ArrowException, OSError) as error:
        raise BadRequest(f"{target!r} is not a place for an archive: {error}") from error
    if not root.strip("/"):
        raise BadRequest(f"{target!r} is not a place for an archive: it names no bucket or folder")
    return filesystem, root.rstrip("/")


def _header(target: str, data: bytes) -> ArchiveHeader:
    try:
        found = msgspec.json.decode(data, type=ArchiveHeader)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{target}/{HEADER} cannot be read: {error}") from error
    if found.version != SCHEMA_VERSION:
        raise BadRequest(
            f"{target} is an archive of version {found.version}; this is version {SCHEMA_VERSION}"
        )
    return found


def _create(path: Path, data: bytes) -> bool:
    """Write a file that must not be there yet, whole or not at all, and sync it."""
    temporary = path.with_suffix(f".{secrets.token_hex(8)}")
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


@contextmanager
def _archive_errors(what: str) -> Iterator[None]:
    """Storage trouble in one line."""
    try:
        yield
    except OSError as error:
        raise BadRequest(f"{what}: {error}") from error
