"""Wrapped keys in a registry: the first one counts, told to their topic, erased for good.

Runs against SQLite here and against PostgreSQL, MariaDB and ZooKeeper in
`tests/integration/cluster/test_registries.py`.
"""

import base64
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import (
    BadRequest,
    Conflict,
    KeyNotFound,
    OverLimit,
    TernError,
    TopicNotFound,
)
from ternmq.meta.access.key_commands import ERASED_FILE, KeyCommands
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.security.access.quota import UserUse
from ternmq.wire.messages.limits import Quota
from ternmq.wire.messages.topics import (
    KeyErase,
    KeyErased,
    TopicKey,
    TopicKeyFind,
    TopicKeyMake,
    TopicKeyQuery,
    TopicKeyRewrap,
    TopicKeys,
    TopicSettings,
)
from ternmq.wire.record import Record
from tests.unit.meta.conftest import Opener
from tests.waiting import until

DIGEST = "ab" * 32
SUBJECT = TopicKeyMake(topic="orders", label=f"s{DIGEST}", master_key="shop", wrapped=b"wrapped-1")
PERIOD = TopicKeyMake(topic="orders", label="p0.abcdef01", master_key="shop", wrapped=b"wrapped-2")


@asynccontextmanager
async def serving_keys(
    opener: Opener, folder: Path
) -> AsyncIterator[tuple[MetaDirectory, KeyCommands]]:
    prepare(folder)
    clock = SystemClock()
    async with serving_directory(opener, clock=clock, refresh_ms=20) as directory:
        for topic in ("orders", "pay"):
            await directory.create_topic(topic, TopicSettings(master_key="shop"))
        yield directory, KeyCommands(directory, data_dir=folder)


async def make_key(keys: KeyCommands, wanted: TopicKeyMake) -> TopicKey:
    answer = await keys.make(wanted)
    assert isinstance(answer, TopicKey)
    return answer


async def find_keys(keys: KeyCommands, topic: str, *ids: int) -> list[tuple[int, bytes, bool]]:
    answer = await keys.find(TopicKeyFind(topic=topic, ids=list(ids)))
    assert isinstance(answer, TopicKeys)
    return [(key.id, key.wrapped, key.erased) for key in answer.keys]


def prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def remembered(folder: Path) -> list[int]:
    file = folder / ERASED_FILE
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def put_back(folder: Path) -> None:
    for path in folder.glob("registry.db*"):
        path.unlink()
    shutil.copy(folder / "older.db", folder / "registry.db")


def erased_in(answer: Record) -> list[str]:
    assert isinstance(answer, KeyErased)
    return answer.topics


async def test_the_first_key_counts_and_is_known_after_a_restart(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        first = await make_key(keys, SUBJECT)
        second = TopicKeyMake(
            topic="orders", label=SUBJECT.label, master_key="shop", wrapped=b"wrapped-3"
        )
        assert await make_key(keys, second) == first
        assert first.wrapped == b"wrapped-1"
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        assert await find_keys(keys, "orders", first.id) == [(first.id, b"wrapped-1", False)]


async def test_a_key_is_told_to_who_may_use_its_own_topic_only(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        key = await make_key(keys, SUBJECT)
        assert await find_keys(keys, "pay", key.id, 12345) == []
        listed = await keys.list(TopicKeyQuery(topic="orders"))
        assert isinstance(listed, TopicKeys)
        assert [(one.label, one.wrapped) for one in listed.keys] == [(SUBJECT.label, b"")]


async def test_an_erased_key_is_gone_everywhere_and_remembered_as_erased(
    opener: Opener, tmp_path: Path
) -> None:
    async with (
        serving_keys(opener, tmp_path / "a") as (_, here),
        serving_keys(opener, tmp_path / "b") as (_, there),
    ):
        key, kept = await make_key(here, SUBJECT), await make_key(here, PERIOD)

        async def seen() -> bool:
            return bool(await find_keys(there, "orders", key.id))

        await until(seen)
        assert erased_in(await here.erase(KeyErase(digest=DIGEST))) == ["orders"]
        assert erased_in(await here.erase(KeyErase(digest=DIGEST))) == []
        assert await find_keys(here, "orders", key.id) == [(key.id, b"", True)]

        async def gone() -> bool:
            return await find_keys(there, "orders", key.id) == [(key.id, b"", True)]

        await until(gone)
        assert await find_keys(there, "orders", kept.id) == [(kept.id, b"wrapped-2", False)]
        await until(lambda: remembered(tmp_path / "b") == [key.id], "by every meta server")
        again = await make_key(here, SUBJECT)
        assert again.id != key.id
    mode = stat.S_IMODE((tmp_path / "a" / ERASED_FILE).stat().st_mode)
    assert mode == 0o600


async def test_one_topic_can_be_erased_alone(opener: Opener, tmp_path: Path) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        await make_key(keys, SUBJECT)
        other = TopicKeyMake(topic="pay", label=SUBJECT.label, master_key="shop", wrapped=b"w")
        kept = await make_key(keys, other)
        erase = KeyErase(digest=DIGEST, topic="orders")
        assert erased_in(await keys.erase(erase)) == ["orders"]
        assert await find_keys(keys, "pay", kept.id) == [(kept.id, b"w", False)]


async def test_an_erased_key_does_not_lie_in_the_file_of_the_registry(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        await make_key(keys, SUBJECT)
        await keys.erase(KeyErase(digest=DIGEST))
    assert not files_with(tmp_path, base64.b64encode(b"wrapped-1"))


def files_with(folder: Path, needle: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


async def test_an_older_registry_does_not_bring_a_key_back(opener: Opener, tmp_path: Path) -> None:
    """As far as the file beside the registry is not older as well."""
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        key = await make_key(keys, SUBJECT)
    if not (tmp_path / "registry.db").exists():
        pytest.skip("a copy of this registry is not a file")
    shutil.copy(tmp_path / "registry.db", tmp_path / "older.db")
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        await keys.erase(KeyErase(digest=DIGEST))
    put_back(tmp_path)

    async with serving_keys(opener, tmp_path / "elsewhere") as (_, keys):
        assert await find_keys(keys, "orders", key.id) == [(key.id, b"wrapped-1", False)]
    async with serving_keys(opener, tmp_path / "a") as (directory, keys):
        again = await make_key(keys, SUBJECT)
        assert again.id != key.id
        assert await find_keys(keys, "orders", key.id) == [(key.id, b"", True)]
        assert all(topic.id != key.id for topic in directory.topics())


async def test_keys_take_no_room_from_topics(opener: Opener) -> None:
    async with serving_directory(opener, clock=SystemClock(), topics_max=3) as directory:
        for name in ("a", "b", "%key.a%p0.abcdef01", "%key.a%p1.abcdef01", "c"):
            await directory.create_topic(name, TopicSettings())
        with pytest.raises(OverLimit, match="there are 3 topics"):
            await directory.create_topic("d", TopicSettings())


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (
            TopicKeyMake(topic="no", label="p1.abcdef01", master_key="shop", wrapped=b"w"),
            TopicNotFound,
        ),
        (TopicKeyMake(topic="orders", label="p1.abcdef01", master_key="x", wrapped=b"w"), Conflict),
        (TopicKeyMake(topic="orders", label="x", master_key="shop", wrapped=b"w"), BadRequest),
        (
            TopicKeyMake(topic="orders", label="p1.abcdef01", master_key="shop", wrapped=b""),
            BadRequest,
        ),
        (
            TopicKeyMake(
                topic="orders", label="p1.abcdef01", master_key="shop", wrapped=bytes(3_000)
            ),
            BadRequest,
        ),
    ],
)
async def test_a_wrong_key_is_refused(
    opener: Opener, tmp_path: Path, wanted: TopicKeyMake, error: type[TernError]
) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        with pytest.raises(error):
            await keys.make(wanted)


async def test_a_wrong_erase_is_refused(opener: Opener, tmp_path: Path) -> None:
    async with serving_keys(opener, tmp_path / "a") as (_, keys):
        with pytest.raises(BadRequest, match="SHA-256"):
            await keys.erase(KeyErase(digest="customer-17"))
        with pytest.raises(BadRequest, match="at most 1000"):
            await keys.find(TopicKeyFind(topic="orders", ids=[1] * 1_001))


async def test_a_key_is_wrapped_again_by_who_knew_it_and_an_erased_one_stays_erased(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_keys(opener, tmp_path) as (_, keys):
        made = await make_key(keys, SUBJECT)
        wanted = TopicKeyRewrap(
            topic="orders", id=made.id, known=b"wrapped-1", master_key="next", wrapped=b"again"
        )
        with pytest.raises(KeyNotFound):
            await keys.rewrap(msgspec.structs.replace(wanted, topic="pay"))
        await keys.rewrap(wanted)
        assert await find_keys(keys, "orders", made.id) == [(made.id, b"again", False)]
        with pytest.raises(Conflict, match="changed meanwhile"):
            await keys.rewrap(wanted)

        await keys.erase(KeyErase(digest=DIGEST))
        with pytest.raises(KeyNotFound):
            await keys.rewrap(msgspec.structs.replace(wanted, known=b"again"))
        assert await find_keys(keys, "orders", made.id) == [(made.id, b"", True)]


async def test_keys_are_listed_in_pages_from_the_newest_on(opener: Opener, tmp_path: Path) -> None:
    async with serving_keys(opener, tmp_path) as (_, keys):
        labels = [f"s{number:064x}" for number in range(3)]
        made = [
            (await make_key(keys, msgspec.structs.replace(SUBJECT, label=label))).id
            for label in labels
        ]
        first = await keys.list(TopicKeyQuery(topic="orders", limit=2))
        assert isinstance(first, TopicKeys)
        assert [key.id for key in first.keys] == [made[2], made[1]]
        rest = await keys.list(TopicKeyQuery(topic="orders", limit=2**60, before=made[1]))
        assert isinstance(rest, TopicKeys)
        assert [key.id for key in rest.keys] == [made[0]]


async def test_a_user_has_as_many_keys_as_its_quota_says(opener: Opener, tmp_path: Path) -> None:
    """S4: a key for each subject stays in the memory of every meta server until it is erased."""
    use = UserUse("shop", Quota(keys_max=2), lambda: 0.0)
    subjects = [
        msgspec.structs.replace(SUBJECT, label=f"s{letter * 64}") for letter in ("a", "b", "c")
    ]
    async with serving_keys(opener, tmp_path) as (directory, keys):
        for wanted in subjects[:2]:
            await keys.make(wanted, use)

        with pytest.raises(OverLimit, match=r"'shop' has its 2 keys.*tern quota set shop --keys N"):
            await keys.make(subjects[2], use)
        assert isinstance(await keys.make(subjects[0], use), TopicKey), "what is there is told"
        assert isinstance(await keys.make(PERIOD, UserUse("pay", Quota(), lambda: 0.0)), TopicKey)
        assert KeyCommands(directory, data_dir=tmp_path)._by_maker == {"shop": 2, "pay": 1}

        await keys.erase(KeyErase(digest="a" * 64))
        await keys.make(subjects[2], use)
