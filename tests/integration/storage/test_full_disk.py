"""A file system that is really full, and one that becomes read-only: small loop mounts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ternmq
from tests.integration.faults import needs_root
from tests.integration.processes import Node, NodeFactory, tern
from tests.integration.storage.test_disk_faults import take, until_sending_works
from tests.integration.verifiable_clients import balanced, whole_topic

TOPIC = "orders"
DISK_MIB = 48
OPTIONS = "loop,errors=remount-ro"
BODY = bytes(1000)
SETTINGS = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_CHECKPOINT_INTERVAL_MS": "200"}


@contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[Path]:
    """A file system of its own, gone after the block."""
    place = folder / "disk"
    place.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place))
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(DISK_MIB << 20)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        if run("mount", "-o", OPTIONS, str(image), str(place), check=False):
            pytest.skip("this machine lets nobody make loop mounts")
    try:
        yield place
    finally:
        run("umount", "-l", str(place))


def run(*command: str, check: bool = True) -> int:
    return subprocess.run(command, check=check, capture_output=True).returncode


async def fill(mq: ternmq.Client) -> tuple[int, ternmq.TernError]:
    """Send until not even a small message is taken; returns how many are safe."""
    safe = 0
    error: ternmq.TernError
    for count in (500, 20, 1):
        error = ternmq.DiskFull("not yet")
        while str(error) == "not yet":
            try:
                receipts = await mq.send_many(TOPIC, [BODY] * count)
            except ternmq.DiskFull as full:
                error = full
                continue
            safe += count - sum(len(rows) for rows, _ in receipts.failures)
            for _, reason in receipts.failures:
                assert isinstance(reason, ternmq.DiskFull), reason
                error = reason
    return safe, error


def node_on(place: Path, node_factory: NodeFactory, **settings: str) -> Node:
    node = node_factory(environment=SETTINGS | settings, start=False)
    node.data_dir = place / "data"
    node.start()
    return node


@needs_root
@pytest.mark.parametrize(
    ("kind", "free_min"),
    [
        ("ext4", "16MiB"),
        pytest.param("ext4", "0", marks=pytest.mark.long),
        pytest.param("tmpfs", "0", marks=pytest.mark.long),
    ],
)
async def test_a_full_disk_stops_producers_only_and_space_that_returns_is_enough(
    kind: str, free_min: str, tmp_path: Path, node_factory: NodeFactory
) -> None:
    """D8, R14: with a reserve, and without one when the very last block is taken."""
    with small_disk(tmp_path, kind) as place:
        ballast = place / "ballast"
        ballast.write_bytes(bytes(12 << 20))
        node = node_on(place, node_factory, TERN_DISK_FREE_MIN=free_min)
        async with ternmq.connect(node.url, compression="none") as mq:
            await mq.send(TOPIC, BODY)
            assert await take(mq, "steady", 1)
            safe, full = await fill(mq)
            safe += 1
            assert "no space left" in str(full) or "free some space" in str(full)
            assert safe > 1000
            assert len(await take(mq, "steady", safe - 1)) == safe - 1
            with pytest.raises(ternmq.DiskFull):
                await mq.send(TOPIC, BODY)

            ballast.unlink()
            await until_sending_works(mq)

            (line,) = await mq.admin.ledger(TOPIC, "steady")
            assert balanced(line)
            assert line.acked == safe
        node.kill()
        node.start()
        async with ternmq.connect(node.url) as mq:
            found = await whole_topic(mq, TOPIC)
            assert len(found) == safe + 1
            assert list(found) == list(range(safe + 1))
            (line,) = await mq.admin.ledger(TOPIC, "steady")
            assert balanced(line)
        assert node.stop() == 0


def turn_read_only(place: Path) -> None:
    """What the kernel does when it finds the file system damaged."""
    found = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE", str(place)], check=True, capture_output=True, text=True
    )
    trigger = Path("/sys/fs/ext4") / Path(found.stdout.strip()).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip("this kernel cannot be told that a file system is damaged")
    trigger.write_text("a test")


@needs_root
async def test_a_disk_that_turns_read_only_takes_no_messages_and_loses_none(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """R14: nothing is acknowledged, what is safe is read and consumed; a writable disk and a
    restart bring everything back."""
    sent = [str(number) for number in range(100)]
    with small_disk(tmp_path, "ext4") as place:
        node = node_on(place, node_factory, TERN_DISK_FREE_MIN="0")
        async with ternmq.connect(node.url) as mq:
            receipts = await mq.send_many(TOPIC, [body.encode() for body in sent])
            assert not receipts.failures
            assert await take(mq, "steady", 10) == sent[:10]
            turn_read_only(place)
            for _ in range(3):
                with pytest.raises(ternmq.DiskFailed):
                    await mq.send(TOPIC, b"refused")
            assert list((await whole_topic(mq, TOPIC)).values()) == sent
            assert await take(mq, "steady", 90) == sent[10:]
        assert node.stop() == 0
        run("umount", str(place))
        run("fsck.ext4", "-p", "-f", str(tmp_path / "image"), check=False)
        run("mount", "-o", OPTIONS, str(tmp_path / "image"), str(place))
        node.start()
        async with ternmq.connect(node.url) as mq:
            await mq.send(TOPIC, b"after")
            found = list((await whole_topic(mq, TOPIC)).values())
            assert found == [*sent, "after"]
            (line,) = await mq.admin.ledger(TOPIC, "steady")
            assert balanced(line)
        assert node.stop() == 0


@needs_root
def test_a_node_on_a_read_only_disk_does_not_start_and_says_why(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    with small_disk(tmp_path, "ext4") as place:
        run("mount", "-o", "remount,ro", str(place))
        refused = tern("up", "--data-dir", str(place / "data"), code=None)

    assert refused.code not in (0, None)
    assert refused.out == ""
    assert refused.err.count("\n") == 1
    assert "Read-only file system" in refused.err
