"""`tern backup`, `restore` and `verify` on real nodes: taken under load, put back, told apart."""

import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ternmq.sync
from ternmq.backup.snapshot import snapshot
from tests.integration.processes import Node, NodeFactory, tern
from tests.waiting import wait_until

SMALL = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_CHECKPOINT_INTERVAL_MS": "200"}
CHANCE = random.Random(1)


@contextmanager
def load(node: Node) -> Iterator[list[str]]:
    """Sends until the block ends; yields ids of what was acknowledged so far, in order."""
    told: list[str] = []
    over = threading.Event()

    def send() -> None:
        with ternmq.sync.connect(node.url, app="load") as mq:
            while not over.is_set():
                told.extend(
                    one.id
                    for one in mq.send_many("orders", [CHANCE.randbytes(4_000) for _ in range(50)])
                )
                mq.send("orders", b"later", delay=3600)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        wait_until(lambda: len(told) > 5_000, "enough messages for several segments")
        yield told
    finally:
        over.set()
        sender.join()


def restored(node_factory: NodeFactory, place: Path | str) -> Node:
    """A new node on what the newest backup holds."""
    node = node_factory(environment=SMALL, start=False)
    tern("restore", str(place), str(node.data_dir))
    node.start()
    return node


def test_what_was_acknowledged_before_a_backup_is_in_it_and_the_node_goes_on(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    old = node_factory(environment=SMALL)
    tern("send", "orders", "first", url=old.url)
    tern("consume", "orders", "--group", "g", "--count", "1", url=old.url)
    with load(old) as told:
        before = list(told)
        made = tern("backup", str(old.data_dir), str(tmp_path / "vault"), "--json").json()
        wait_until(lambda: len(told) > len(before) + 100, "that the node goes on")
    assert made["problems"] == [] and not (old.data_dir / "backup.tmp").exists()
    old.kill()

    new = restored(node_factory, tmp_path / "vault")
    with ternmq.sync.connect(new.url, app="look") as mq:
        there = {message.id for message in mq.read("orders")}
        assert set(before) <= there
        [delayed] = [one for one in mq.admin.delays.ledger() if one.topic == "orders"]
        assert delayed.pending >= len(before) // 50 - 1
        [line] = mq.admin.ledger("orders", "g")
        assert line.acked == 1 and line.ready == line.total - 1 >= len(before)
        mq.send("orders", b"after")
    assert "damaged" not in tern("verify", str(tmp_path / "vault")).out


def test_a_second_backup_copies_what_is_new_and_old_ones_can_be_forgotten(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(environment=SMALL), str(tmp_path / "vault")
    with load(node):
        pass
    first = tern("backup", str(node.data_dir), vault, "--json").json()
    tern("send", "orders", "one more", url=node.url)
    second = tern("backup", str(node.data_dir), vault, "--json").json()
    third = tern("backup", str(node.data_dir), vault, "--keep", "2", "--json").json()

    assert first["copied"] > 20_000_000 > 9_000_000 > second["copied"]
    assert third["forgotten"] == 1
    listed = tern("restore", vault, "unused", "--list", "--json").json()
    assert [one["name"] for one in listed] == [second["name"], third["name"]]
    tern("verify", vault)


def test_a_damaged_backup_says_so_and_leaves_no_half_of_a_directory(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault, target = node_factory(), tmp_path / "vault", tmp_path / "new"
    tern("send", "orders", "a", url=node.url)
    tern("backup", str(node.data_dir), str(vault))
    largest = max(
        (vault / "objects").rglob("*"), key=lambda path: path.is_file() and path.stat().st_size
    )
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)

    assert "damaged" in tern("verify", str(vault), code=1).err
    refused = tern("restore", str(vault), str(target), code=1)
    assert "damaged" in refused.err and "--at" in refused.err
    largest.unlink()
    assert "missing" in tern("verify", str(vault), code=1).err
    assert not target.exists() and not list(tmp_path.glob("*.restoring"))


def test_a_backup_of_a_damaged_log_says_so_when_it_is_made(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Else a copy that nobody can use would be found out on the day it is needed."""
    node, vault = node_factory(), str(tmp_path / "vault")
    for body in ("a", "b"):
        tern("send", "orders", body, url=node.url)
    [log] = (node.data_dir / "broker" / "message").glob("*.log")
    with log.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff")
    made = tern("backup", str(node.data_dir), vault, code=1)
    assert "broker/message" in made.err and "offset 0:" in made.err
    assert "offset 0:" in tern("verify", vault, code=1).err


def test_verify_tells_a_torn_end_from_damage(node_factory: NodeFactory) -> None:
    node = node_factory()
    tern("send", "orders", "a", "b", "c", url=node.url)
    tern("send", "orders", "d", url=node.url)
    for end in (node.kill, node.stop):  # A kill leaves room for more behind the last record.
        end()
        whole = tern("verify", str(node.data_dir), "--json").json()
        assert [one for one in whole if one["problems"] or one["torn"]] == []
        if end == node.kill:
            node.start()

    [log] = (node.data_dir / "broker" / "message").glob("*.log")
    content = bytearray(log.read_bytes())
    log.write_bytes(content + content[:100])
    [torn] = [one for one in tern("verify", str(node.data_dir), "--json").json() if one["torn"]]
    assert torn["log"] == "broker/message" and not torn["problems"]

    log.write_bytes(content[:-16])
    refused = tern("verify", str(node.data_dir), code=1)
    assert "are missing: they were safe once" in refused.err

    log.unlink()
    refused = tern("verify", str(node.data_dir), code=1)
    assert f"broker/message: bytes 0 to {len(content)} are missing" in refused.err
    log.parent.rmdir()
    assert "are missing" in tern("verify", str(node.data_dir), code=1).err
    vault = str(node.data_dir.with_name("vault"))
    assert "back up another member" in tern("backup", str(node.data_dir), vault, code=1).err

    log.parent.mkdir()
    content[150] ^= 1
    log.write_bytes(content)
    refused = tern("verify", str(node.data_dir), code=1)
    assert "broker/message: offset 0" in refused.err and "damaged" in refused.out


def test_mistakes_are_one_line_and_change_nothing(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(), str(tmp_path / "vault")
    empty = tmp_path / "empty"
    empty.mkdir()

    assert "holds no data" in tern("backup", str(empty), vault, code=2).err
    assert "is no directory" in tern("backup", str(tmp_path / "nowhere"), vault, code=2).err
    assert "no backup here" in tern("restore", vault, str(tmp_path / "new"), code=2).err
    assert "holds no log" in tern("verify", str(empty), code=2).err
    tern("backup", str(node.data_dir), vault)
    assert "is not empty" in tern("restore", vault, str(node.data_dir), code=2).err
    at = ("--at", "2020-01-01T00:00:00")
    assert "the oldest is" in tern("restore", vault, str(tmp_path / "new"), *at, code=2).err
    assert not (tmp_path / "new").exists() and list(empty.iterdir()) == []


def test_one_place_holds_several_directories_and_keeps_each(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    one, two, vault = node_factory(), node_factory(), str(tmp_path / "vault")
    tern("send", "orders", "one", url=one.url)
    tern("send", "orders", "two", url=two.url)
    tern("backup", str(one.data_dir), vault)
    tern("backup", str(two.data_dir), vault)
    tern("backup", str(two.data_dir), f"file://{vault}", "--keep", "1")

    listed = tern("restore", vault, "unused", "--list", "--json").json()
    assert [item["source"] for item in listed] == [str(one.data_dir), str(two.data_dir)]
    target = tmp_path / "new"
    assert "--source" in tern("restore", vault, str(target), code=2).err
    one.stop()
    tern("restore", vault, str(target), "--source", str(one.data_dir))
    tern("verify", str(target))


def test_a_meta_server_has_no_logs_and_is_put_back(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(), str(tmp_path / "vault")
    tern("topic", "create", "orders", url=node.url)
    tern("backup", str(node.data_dir / "meta"), vault)
    tern("restore", vault, str(tmp_path / "new"))

    assert (tmp_path / "new" / "registry.db").is_file()


def test_links_and_a_second_backup_at_once_are_refused_by_name(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(), str(tmp_path / "vault")
    with snapshot(node.data_dir):
        assert "another backup" in tern("backup", str(node.data_dir), vault, code=1).err
    node.stop()
    moved = tmp_path / "elsewhere"
    (node.data_dir / "broker" / "message").rename(moved)
    (node.data_dir / "broker" / "message").symlink_to(moved)

    refused = tern("backup", str(node.data_dir), vault, code=2)
    assert "broker/message is a symbolic link" in refused.err
    assert not (tmp_path / "vault").exists()


def test_a_backup_in_s3_is_put_back(node_factory: NodeFactory, tmp_path: Path, s3: str) -> None:
    node = node_factory()
    tern("send", "orders", "a", "b", url=node.url)
    place = s3.replace("/archive", "/backups")
    made = tern("backup", str(node.data_dir), place, "--json").json()
    again = tern("backup", str(node.data_dir), place, "--keep", "1", "--json").json()
    node.kill()

    assert made["copied"] > 0 and again["forgotten"] == 1 and again["problems"] == []
    new = restored(node_factory, place)
    assert tern("browse", "orders", "--json", url=new.url).out.count('"sequence"') == 2


def fill(url: str, word: str) -> None:
    """Two messages now and one for later, all with this word."""
    with ternmq.sync.connect(url, app="shop") as mq:
        mq.send_many("orders", [f"{word} {number}".encode() for number in range(2)])
        mq.send("orders", f"{word} later".encode(), delay=3600)


def check_as_of_first(url: str) -> None:
    """What was sent before the first backup is there, now and for later, and nothing else; it goes
    on from there."""
    with ternmq.sync.connect(url, app="look") as mq:
        assert sorted(m.body for m in mq.read("orders")) == [b"first 0", b"first 1"]
        [waiting] = [one for one in mq.admin.delays.ledger() if one.topic == "orders"]
        assert waiting.pending == 1
        with mq.consumer("orders", group="g") as messages:
            assert sorted(next(messages).body for _ in range(2)) == [b"first 0", b"first 1"]
        mq.send("orders", b"after")


@pytest.mark.parametrize("where", ["folder", pytest.param("s3", marks=pytest.mark.long)])
def test_an_older_backup_is_put_back_by_its_time(
    node_factory: NodeFactory, tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    node, place = node_factory(), str(tmp_path / "vault")
    if where == "s3":
        place = request.getfixturevalue("s3").replace("/archive", "/backups")
    moments = []
    for word in ("first", "second"):
        fill(node.url, word)
        made = tern("backup", str(node.data_dir), place, "--json").json()
        assert made["problems"] == [], "read again after it was written"
        moments.append(made["name"])
    node.kill()

    new = node_factory(start=False)
    tern("restore", place, str(new.data_dir), "--at", moments[0])
    new.start()
    check_as_of_first(new.url)


@pytest.mark.long
def test_a_cluster_with_replicas_and_delay_servers_is_put_back_as_of_a_time(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    cluster, vault = node_factory.cluster("--groups", "2", "--replicas", "1"), tmp_path / "vault"
    fill(cluster.url, "first")
    first = tern("backup", str(cluster.data_dir), str(vault), "--json").json()
    fill(cluster.url, "second")
    second = tern("backup", str(cluster.data_dir), str(vault), "--json").json()
    assert first["problems"] == second["problems"] == []
    cluster.stop()

    again = node_factory.cluster(start=False)
    tern("restore", str(vault), str(again.data_dir), "--at", first["name"])
    again.start()
    check_as_of_first(again.url)
    assert "fail" not in tern("doctor", url=again.url).out


def now_between() -> str:
    """A moment that is not that of a record before or behind it."""
    time.sleep(0.005)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.005)
    return at


def bodies(mq: ternmq.sync.Client, topic: str) -> list[bytes]:
    return [message.body for message in mq.read(topic)]


def test_any_moment_between_two_backups_can_be_restored(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(), str(tmp_path / "vault")
    with ternmq.sync.connect(node.url, app="a") as mq:
        mq.send("orders", b"before")
        mq.send("orders", b"of an hour", delay=3600)
        tern("backup", str(node.data_dir), vault)
        mq.send("orders", b"between")
        mq.send("new", b"new")
        mq.send("old", b"old")
        mq.send("later", b"fires behind it", delay=1.5)
        mq.send("later", b"of an hour", delay=3600)
        with mq.consumer("orders", group="g") as consumer:
            for _ in range(2):
                next(consumer).ack()
        moment = now_between()
        mq.send("orders", b"behind")
        mq.send("newer", b"newer")
        mq.admin.delete_topic("old")
        with mq.consumer("orders", group="g") as consumer:
            next(consumer).ack()
        wait_until(lambda: bodies(mq, "later") == [b"fires behind it"], "that it fires")
        node.kill()
        node.start()  # Another epoch.
        mq.send("orders", b"last")
        tern("backup", str(node.data_dir), vault)
    node.kill()

    again = node_factory(start=False)
    told = tern("restore", vault, str(again.data_dir), "--at", moment)
    assert "brought forward" in told.out
    again.start()
    with ternmq.sync.connect(again.url, app="b") as mq:
        assert bodies(mq, "orders") == [b"before", b"between"]
        assert bodies(mq, "new") == [b"new"] and bodies(mq, "old") == [b"old"]
        assert {topic.name for topic in mq.admin.topics()} >= {"orders", "new", "old"}
        assert "newer" not in {topic.name for topic in mq.admin.topics()}
        [line] = mq.admin.ledger("orders", "g")
        assert (line.acked, line.total) == (2, 2)
        with mq.consumer("later", group="g") as consumer:
            assert next(consumer).body == b"fires behind it"
        assert sum(one.pending for one in mq.admin.delays.ledger()) == 2
        mq.send("newer", b"made anew")
        assert bodies(mq, "newer") == [b"made anew"]


def test_a_moment_that_cannot_be_reached_is_refused_and_the_backup_before_it_is_offered(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    node, vault = node_factory(), str(tmp_path / "vault")
    tern("send", "orders", "a", url=node.url)
    tern("backup", str(node.data_dir), vault)
    node.kill()
    copy = tmp_path / "copy"
    shutil.copytree(node.data_dir, copy)
    node.start()
    tern("send", "orders", "b", url=node.url)
    tern("backup", str(node.data_dir), vault)
    moment = now_between()
    node.kill()
    shutil.rmtree(node.data_dir)
    copy.rename(node.data_dir)
    node.start()  # The same place, with another history.
    tern("send", "orders", "not b", url=node.url)
    tern("backup", str(node.data_dir), vault)

    refused = tern("restore", vault, str(tmp_path / "new"), "--at", moment, code=2)
    assert "written anew" in refused.err and "--whole" in refused.err
    assert not (tmp_path / "new").exists()
    tern("restore", vault, str(tmp_path / "new"), "--at", moment, "--whole")
    late = tern("restore", vault, str(tmp_path / "newest"), "--at", now_between())
    assert "no later backup" in late.err
