"""A data directory at one moment: a mark and the log that it speaks of belong together."""

from pathlib import Path

import pytest

from ternmq.backup import snapshot as module
from ternmq.backup.snapshot import SnapshotFile, snapshot
from ternmq.core.errors import Unavailable
from ternmq.storage.config import StorageConfig
from ternmq.storage.files.disk import RealDisk
from ternmq.storage.files.log_mark import LogMark
from tests.unit.storage.builders import MESSAGE_0, fresh


def filled(folder: Path, size: int) -> Path:
    """A broker's folder whose message log is so long, by its mark and by its bytes."""
    (folder / "message").mkdir(parents=True)
    (folder / "message" / f"{0:020d}.log").write_bytes(bytes(size))
    mark = LogMark(RealDisk(), folder / "message.mark")
    mark.note(size, size)
    mark.close()
    (folder / ".node-secret.17").write_text("secret")
    return folder


def test_a_log_that_is_cut_meanwhile_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, linked = filled(tmp_path / "broker", 1_000), module._linked
    times = iter(range(100))

    def cutting(*arguments: object) -> list[SnapshotFile]:
        files = linked(*arguments)  # type: ignore[arg-type]
        if next(times) == 0:  # Its mark is read; now it is cut, mark and all.
            files = [file if file.path.suffix != ".log" else _shorter(file, 900) for file in files]
        return files

    monkeypatch.setattr(module, "_linked", cutting)
    with snapshot(home) as files:
        sizes = {file.path.name: file.size for file in files}
    assert sizes[f"{0:020d}.log"] == 1_000 and next(times) == 2
    assert ".node-secret.17" not in sizes


def test_room_behind_the_last_record_is_left_behind(tmp_path: Path) -> None:
    """Also where it ends in zeros itself; a record that is being written is kept as it is."""
    disk, store, maker = fresh(StorageConfig())
    maker.put(store, maker.append(1, body=b"a"))
    known = len(disk.read(MESSAGE_0))
    maker.put(store, maker.append(1, body=bytes(3_000)), maker.append(1, body=bytes(500)))
    records = disk.read(MESSAGE_0)
    for torn in (b"", records[:100]):
        home = filled(tmp_path / f"{len(torn)}", known)
        (home / "message" / f"{0:020d}.log").write_bytes(records + torn + bytes(100_000))
        with snapshot(home) as files:
            [size] = [file.size for file in files if file.path.suffix == ".log"]
        assert size == len(records) + (known if torn else 0)


def test_a_directory_that_never_holds_still_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_cut", lambda files: True)
    with pytest.raises(Unavailable, match="try again"), snapshot(filled(tmp_path / "b", 10)):
        pass
    assert not (tmp_path / "b" / "backup.tmp").exists()


def _shorter(file: SnapshotFile, size: int) -> SnapshotFile:
    return SnapshotFile(
        path=file.path, source=file.source, size=size, mode=file.mode, version=file.version
    )
