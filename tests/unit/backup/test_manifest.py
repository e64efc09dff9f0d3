"""A manifest comes from a place that others may write to: what it names is checked."""

import pytest

from ternmq.backup.manifest import BackedUpFile, BackupManifest, from_json, name_of, to_json
from ternmq.core.errors import Corrupt

HASH = "a" * 64


def manifest(path: str = "broker/member", part: str = HASH, form: int = 1) -> BackupManifest:
    files = [BackedUpFile(path=path, size=1, parts=[part], mode=0o640, version=(1, 2))]
    return BackupManifest(format=form, made_at="t", source="/data", release="0.2", files=files)


def test_it_reads_as_it_was_written() -> None:
    assert from_json(to_json(manifest()), "t") == manifest()


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "/etc/passwd", "broker/../../x", "broker//x", "", "a\\..\\b", "./x"]
)
def test_a_file_outside_the_directory_is_refused(path: str) -> None:
    with pytest.raises(Corrupt, match="outside its directory"):
        from_json(to_json(manifest(path)), "t")


@pytest.mark.parametrize("part", ["", "../../x", "a" * 63, "a" * 62 + "/."])
def test_a_part_that_is_no_hash_is_refused(part: str) -> None:
    with pytest.raises(Corrupt, match="is none"):
        from_json(to_json(manifest(part=part)), "t")


def test_other_formats_and_other_files_are_told_apart_from_ours() -> None:
    with pytest.raises(Corrupt, match="has format 2"):
        from_json(to_json(manifest(form=2)), "t")
    with pytest.raises(Corrupt, match="cannot be read"):
        from_json(b'{"format": 1}', "t")
    with pytest.raises(Corrupt, match="cannot be read"):
        from_json(b"\x00\xff", "t")


def test_names_sort_by_time() -> None:
    moments = [0, 999, 1_000, 1_800_000_000_000, 1_800_000_000_001]
    names = [name_of(moment) for moment in moments]

    assert names == sorted(names) and len(set(names)) == len(names)
