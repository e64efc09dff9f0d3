"""Data keys of encrypted topics: kept wrapped, told to who may use the topic, erased for good.

A key is kept as the settings of a hidden topic (`%key.TOPIC%LABEL`), as identities are: every kind
of registry keeps it, making it is a transaction in which the first one wins, its number is never
used again, and a deleted one is remembered as deleted. What is kept is wrapped by a master key that
no server has. Keys are told to nobody but by these commands; brokers never hear of them.

To erase a key is to write its number into a file beside this server's data, to overwrite what is
kept, and to delete it, in this order. A registry that is older (put back from a copy) may have the
key again: by the file it stays erased here. Copies of the registry have it until they are gone.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ternmq.core.errors import (
    BadRequest,
    Conflict,
    KeyNotFound,
    OverLimit,
    TernError,
    TopicNotFound,
)
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import KEY_PREFIX, key_owner, key_topic
from ternmq.meta.directory import MetaDirectory
from ternmq.security.access.quota import UserUse
from ternmq.wire.messages.topics import (
    ASKED_MAX,
    KeyErase,
    KeyErased,
    Topic,
    TopicKey,
    TopicKeyFind,
    TopicKeyMake,
    TopicKeyQuery,
    TopicKeyRewrap,
    TopicKeys,
    TopicSettings,
)
from ternmq.wire.record import Record

LISTED_MAX = 1_000
KEYS_MAX = 100_000
"""Data keys of a cluster: each meta server has them in memory."""
WRAPPED_SIZE_MAX = 2_048
ERASED_FILE = "erased-keys"
_LABEL = re.compile(r"p\d{1,15}\.[0-9a-f]{8}|s[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

log = get_logger()


class KeptEntry(msgspec.Struct, frozen=True):
    """What the registry keeps of a key, as JSON."""

    master_key: str
    wrapped: bytes


class KeyCommands:
    """The questions of producers and consumers of encrypted topics, and of who erases."""

    def __init__(self, directory: MetaDirectory, *, data_dir: Path) -> None:
        self._directory = directory
        self._background = Background("remembering erased keys", lambda error: None)
        self._file = data_dir / ERASED_FILE
        self._erased = _read_erased(self._file)
        self._by_id: dict[int, Topic] = {}
        self._by_digest: dict[str, set[str]] = {}
        self._by_owner: dict[str, set[int]] = {}
        """Numbers of keys by topic."""
        self._by_maker: Counter[str] = Counter()
        """How many each user made that are there."""
        for topic in directory.topics():
            self._learn(topic)
        directory.on_topic_changed(self._learn)
        directory.on_topic_deleted(self._heard_deleted)

    async def make(self, wanted: TopicKeyMake, use: UserUse | None = None) -> Record:
        """The key of that label: the one that is proposed, unless there is one. `use`: of the user
        who makes it, and may have only so many."""
        topic = self._directory.topic(wanted.topic)
        if topic is None:
            raise TopicNotFound(f"there is no topic {wanted.topic!r}")
        if topic.settings.master_key != wanted.master_key or not wanted.master_key:
            raise Conflict(
                f"topic {wanted.topic!r} is encrypted under "
                f"{topic.settings.master_key or 'nothing'!r} now, not {wanted.master_key[:40]!r}: "
                "try again"
            )
        if _LABEL.fullmatch(wanted.label) is None or wanted.topic.startswith("%"):
            raise BadRequest("a data key is of a period (pTIME.MASTER) or a subject (sDIGEST)")
        if not 1 <= len(wanted.wrapped) <= WRAPPED_SIZE_MAX:
            raise BadRequest(f"a wrapped key has 1 to {WRAPPED_SIZE_MAX} bytes")
        name = key_topic(wanted.topic, wanted.label)
        held = self._directory.topic(name)
        if held is not None and held.id in self._erased:
            await self._delete(held)  # An older registry brought it back.
            held = None
        if held is None:
            if len(self._by_id) >= KEYS_MAX:
                raise OverLimit(f"there are {KEYS_MAX} data keys; erase subjects that are gone")
            entry = KeptEntry(master_key=wanted.master_key, wrapped=wanted.wrapped)
            line = msgspec.json.encode(entry).decode()
            maker = "" if use is None else use.name
            if use is not None:
                use.check_made("keys", self._by_maker.get(maker, 0), use.quota.keys_max)
            settings = TopicSettings(closed=True, apps=[line], made_by=maker)
            held = await self._directory.news.in_time(self._directory.create_topic(name, settings))
            self._learn(held)
        return key_record(held)

    async def find(self, wanted: TopicKeyFind) -> Record:
        """The keys that are known: to be used, or erased. A key of another topic is not told."""
        if len(wanted.ids) > ASKED_MAX:
            raise BadRequest(f"at most {ASKED_MAX} keys are asked for at once")
        found: dict[int, TopicKey] = {}
        for id in wanted.ids:
            held = self._by_id.get(id)
            if id in self._erased:
                found[id] = _erased_record(id, wanted.topic)
                if held is not None:
                    await self._delete(held)
            elif held is not None and key_owner(held.name)[0] == wanted.topic:
                found[id] = key_record(held)
        left = [id for id in wanted.ids if id not in found and id not in self._by_id]
        gone = await self._directory.gone_topics(left) if left else ()
        found |= {id: _erased_record(id, wanted.topic) for id in gone}
        return TopicKeys(keys=list(found.values()))

    async def list(self, wanted: TopicKeyQuery) -> Record:
        """Without what is wrapped."""
        held = self._by_owner.get(wanted.topic, set()) - self._erased
        chosen = sorted((id for id in held if not 0 < wanted.before <= id), reverse=True)
        page = chosen[: max(0, min(wanted.limit, LISTED_MAX))]
        return TopicKeys(keys=[replace(key_record(self._by_id[id]), wrapped=b"") for id in page])

    async def rewrap(self, wanted: TopicKeyRewrap) -> Record:
        """Keep a key as another master key wraps it. Who can unwrap it says that it is the same:
        nobody here could tell. One that was erased, or changed meanwhile, stays what it is."""
        if not 1 <= len(wanted.wrapped) <= WRAPPED_SIZE_MAX or not wanted.master_key:
            raise BadRequest(f"a wrapped key has 1 to {WRAPPED_SIZE_MAX} bytes, and a master key")
        held = self._by_id.get(wanted.id)
        if held is None or wanted.id in self._erased or key_owner(held.name)[0] != wanted.topic:
            raise KeyNotFound(f"topic {wanted.topic!r} has no data key {wanted.id}")
        entry = KeptEntry(master_key=wanted.master_key, wrapped=wanted.wrapped)
        line = msgspec.json.encode(entry).decode()
        known = wanted.known

        def change(settings: TopicSettings) -> TopicSettings:
            if not settings.apps or kept_entry(settings).wrapped != known:
                raise Conflict(f"data key {wanted.id} was changed meanwhile: ask for it again")
            return replace(settings, closed=True, apps=[line])

        changed = self._directory.change_topic(held.name, change)
        topic = await self._directory.news.in_time(changed)
        self._learn(topic)
        return key_record(topic)

    async def erase(self, wanted: KeyErase) -> Record:
        """Delete the keys of a subject; done when the registry has it on its disk."""
        if _DIGEST.fullmatch(wanted.digest) is None:
            raise BadRequest("a subject is named by its SHA-256, 64 hex digits")
        names = sorted(self._by_digest.get(wanted.digest, ()))
        held = [topic for name in names if (topic := self._directory.topic(name)) is not None]
        if wanted.topic:
            held = [topic for topic in held if key_owner(topic.name)[0] == wanted.topic]
        if held:
            await asyncio.to_thread(_remember, self._file, [topic.id for topic in held])
            self._erased |= {topic.id for topic in held}
        for topic in held:
            await self._delete(topic)
        log.info("keys of a subject are erased", subject_digest=wanted.digest[:8], keys=len(held))
        return KeyErased(topics=[key_owner(topic.name)[0] for topic in held])

    async def _delete(self, topic: Topic) -> None:
        """Overwritten first: the row of a deleted topic stays in the registry."""
        in_time, nothing = self._directory.news.in_time, TopicSettings(closed=True)
        with suppress(TopicNotFound):  # Somebody else erases it, too.
            await in_time(self._directory.change_topic(topic.name, lambda _: nothing))
            await in_time(self._directory.delete_topic(topic.name))
        self._forget(topic)

    def _learn(self, topic: Topic) -> None:
        if not topic.name.startswith(KEY_PREFIX):
            return
        if not topic.settings.apps:  # Overwritten, by another meta server: about to be deleted.
            self._forget(topic)
        else:
            if topic.id not in self._by_id:
                self._by_maker[topic.settings.made_by] += 1
            self._by_id[topic.id] = topic
            owner, label = key_owner(topic.name)
            self._by_owner.setdefault(owner, set()).add(topic.id)
            if label.startswith("s"):
                self._by_digest.setdefault(label[1:], set()).add(topic.name)

    def _heard_deleted(self, topic: Topic) -> None:
        """Another meta server erased it: this one remembers it as well."""
        self._forget(topic)
        if topic.name.startswith(KEY_PREFIX) and topic.id not in self._erased:
            self._erased.add(topic.id)
            remembering = asyncio.to_thread(_remember, self._file, [topic.id])
            self._background.task(remembering, name="tern-erased-keys")

    def _forget(self, topic: Topic) -> None:
        if topic.name.startswith(KEY_PREFIX):
            held = self._by_id.pop(topic.id, None)
            if held is not None:
                self._by_maker[held.settings.made_by] -= 1
                if not self._by_maker[held.settings.made_by]:
                    del self._by_maker[held.settings.made_by]
            owner, label = key_owner(topic.name)
            ids = self._by_owner.get(owner, set())
            ids.discard(topic.id)
            if not ids:
                self._by_owner.pop(owner, None)
            digest = label[1:]
            names = self._by_digest.get(digest, set())
            names.discard(topic.name)
            if not names:
                self._by_digest.pop(digest, None)


def kept_entry(settings: TopicSettings) -> KeptEntry:
    """What the settings of such a topic say."""
    return msgspec.json.decode(settings.apps[0], type=KeptEntry)


def key_record(topic: Topic) -> TopicKey:
    """A key from the topic that keeps it."""
    owner, label = key_owner(topic.name)
    try:
        entry = kept_entry(topic.settings)
    except (IndexError, msgspec.DecodeError, msgspec.ValidationError):
        raise TernError(
            f"data key {topic.id} of {owner!r} cannot be read in the registry"
        ) from None
    return TopicKey(
        id=topic.id,
        topic=owner,
        label=label,
        master_key=entry.master_key,
        wrapped=entry.wrapped,
        made_at_ms=topic.created_at_ms,
    )


def _erased_record(id: int, topic: str) -> TopicKey:
    return TopicKey(id=id, topic=topic, erased=True)


def _read_erased(path: Path) -> set[int]:
    """Numbers of keys that this server was told to erase, ever; a torn last line is no number."""
    try:
        lines = path.read_text().split("\n")
    except FileNotFoundError:
        return set()
    return {int(line) for line in lines[:-1] if line.isdecimal()}


def _remember(path: Path, ids: Iterable[int]) -> None:
    """On the disk before anything is deleted; blocks."""
    made = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(b"".join(b"%d\n" % id for id in ids))
        file.flush()
        os.fsync(file.fileno())
    if made:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
