"""The data keys of one client: fetched wrapped from a meta server, opened by its master keys, kept.

Producers need the key of the present period of a topic, or those of subjects; where there is none
yet they make one, and the first that is stored counts. Consumers and readers need the keys that the
seals of a batch name. Finding a key waits for servers (`prepare`, `ready`), encrypting and opening
do not: they use what was found, or raise why it was not. A reason is kept for a moment, a key for
half a minute: then it is asked for again, so an erased key is soon gone everywhere. While no meta
server answers, keys that were found go on being used.

Belongs to one event loop. Without encrypted topics nothing of it is called but two `if`s.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import ROWS_MAX, Encoding
from ternmq.batch.seal import OpenedBodies
from ternmq.batch.view import BatchView
from ternmq.client.sealing.decryption import KeyName, RowRanges, keys_of, open_batch
from ternmq.core.clock import Clock, SystemClock, elapsed
from ternmq.core.errors import BadRequest, Conflict, Erased, KeyNotFound, TernError
from ternmq.core.ids import ProducerId
from ternmq.core.lifecycle import Background
from ternmq.security.sealing.data_key import KEY_SIZE, DataKey
from ternmq.security.sealing.master_keys import MasterKeys, context_of
from ternmq.wire.messages.servers import Encryption, Routes
from ternmq.wire.messages.topics import (
    ASKED_MAX,
    TopicKey,
    TopicKeyFind,
    TopicKeyMake,
    TopicKeyRewrap,
    TopicKeys,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record

KEY_KEPT_S = 30.0
REASON_KEPT_S = 1.0
KEYS_KEPT_MAX = 2 * ROWS_MAX
"""Of each kind; more than one batch can need."""
AT_ONCE_MAX = 32
"""Keys of subjects that are asked for at the same time."""
WAIT_S = 30.0
"""So long a key is asked for while no meta server answers."""
PAUSE_S = 0.2

Row = bytes | Outgoing
HeldKey = tuple[DataKey | TernError, float]
"""A key or why there is none, and until when that counts."""


T = TypeVar("T", bound=Record)


class KeySource(Protocol):
    """The cluster, as far as keys are concerned."""

    known_routes: Routes | None
    on_routes: list[Callable[[], None]]

    async def ask_meta(self, command: int, record: Record, answer: type[T]) -> T: ...

    async def refresh(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKeys:
    """What one client has itself: without master keys it opens no encrypted topic."""

    masters: MasterKeys = field(default_factory=lambda: MasterKeys({}))
    clock: Clock = field(default_factory=SystemClock)
    """Periods go by it."""


class Keyring:
    """Everything about keys of one client."""

    def __init__(
        self, cluster: KeySource, keys: ClientKeys, now: Callable[[], float] = elapsed
    ) -> None:
        self._cluster = cluster
        self._masters = keys.masters
        self._clock = keys.clock
        self._now = now
        self._background = Background("finding keys", self._failed)
        self._fetching: set[KeyName] = set()
        self._waiting: list[Callable[[], None]] = []
        self._by_label: dict[tuple[str, str], HeldKey] = {}
        self._by_id: dict[KeyName, HeldKey] = {}
        self._newest: dict[tuple[str, str], DataKey] = {}
        """By topic and master key."""
        self.topics: dict[str, Encryption] = {}
        """Topics whose bodies are encrypted."""
        self._learn()
        cluster.on_routes.append(self._learn)

    def _learn(self) -> None:
        routes = self._cluster.known_routes
        self.topics = {} if routes is None else routes.encrypted

    # For what is sent.

    def lacks(self, topic: str, rows: Sequence[Row]) -> bool:
        """Is there a key to be found first, before these rows can be encrypted?"""
        encryption = self.topics.get(topic)
        if encryption is None:
            return False
        labels = _labels(self._period(encryption), rows)
        return any(not self._fresh(topic, label) for label in labels)

    def finds_first(self, topic: str, rows: Sequence[Row], again: Callable[[], None]) -> bool:
        """Is there a key to be found before these rows can be encrypted? It is looked for, and
        `again` is called when it is there, or when it is known why not."""
        if not self.lacks(topic, rows):
            return False

        async def find() -> None:
            await self.prepare(topic, rows)
            again()

        self._background.task(find(), name="tern-find-keys")
        return True

    async def prepare(self, topic: str, rows: Sequence[Row]) -> None:
        """Find or make what is lacking; what fails is told by `seal`."""
        encryption = self.topics.get(topic)
        if encryption is None:
            return
        labels = _labels(self._period(encryption), rows)
        labels = [label for label in labels if not self._fresh(topic, label)]
        give_up = self._now() + WAIT_S
        for first in range(0, len(labels), AT_ONCE_MAX):
            part = labels[first : first + AT_ONCE_MAX]
            await asyncio.gather(*(self._make(topic, encryption, label, give_up) for label in part))

    def seal(
        self, topic: str, rows: Sequence[Row], numbers: tuple[ProducerId, int], encoding: Encoding
    ) -> tuple[list[bytes], list[bytes | None]]:
        """(ciphertext, seal) of the bodies, whose numbers begin with `numbers`; raises why not."""
        producer, first = numbers
        period = self._period(self.topics[topic])
        keys = {label: self._key(topic, label) for label in _labels(period, rows)}
        bodies: list[bytes] = []
        seals: list[bytes | None] = []
        base = producer.message_id(first)
        for at, row in enumerate(rows):
            number = (base + at).to_bytes(16, "big")
            if isinstance(row, bytes):
                made, seal = keys[period].encrypt(row, number, number, encoding)
            else:
                label = period if row.subject is None else subject_label(row.subject)
                known_as = row.explicit_id or number
                made, seal = keys[label].encrypt(row.body, number, known_as, encoding)
            bodies.append(made)
            seals.append(seal)
        return bodies, seals

    def _period(self, encryption: Encryption) -> str:
        """The label of the key of now. Another master key has others."""
        now_ms = self._clock.now_ms()
        master = sha256(encryption.master_key.encode()).hexdigest()[:8]
        return f"p{now_ms - now_ms % encryption.period_ms}.{master}"

    def _fresh(self, topic: str, label: str) -> bool:
        """Keys of periods are never erased, so they stay."""
        held = self._by_label.get((topic, label))
        return held is not None and (
            held[1] > self._now() or (label.startswith("p") and isinstance(held[0], DataKey))
        )

    def _key(self, topic: str, label: str) -> DataKey:
        """The one of that label; of a period that has just begun, that of the one before, until it
        is known that there cannot be one."""
        held = self._by_label.get((topic, label))
        found = _not_in_time(topic) if held is None else held[0]
        if not isinstance(found, DataKey) and _in_vain(found) and label.startswith("p"):
            found = self._newest.get((topic, label.partition(".")[2]), found)
        if isinstance(found, DataKey):
            return found
        raise found.copy()

    async def _make(self, topic: str, encryption: Encryption, label: str, give_up: float) -> None:
        try:
            key = await self._made(topic, encryption, label, give_up)
        except TernError as error:
            self._keep(self._by_label, (topic, label), error)
        except Exception as bug:  # Whoever waits for the key has to hear of it.
            self._background.report(bug)
            self._keep(self._by_label, (topic, label), _not_in_time(topic))
        else:
            self._keep(self._by_label, (topic, label), key)
            if label.startswith("p"):
                self._newest[topic, label.partition(".")[2]] = key

    async def _made(
        self, topic: str, encryption: Encryption, label: str, give_up: float
    ) -> DataKey:
        master = self._masters.find(encryption.master_key, topic)
        secret = os.urandom(KEY_SIZE)
        context = context_of(encryption.master_key, topic, label)
        wrapping = _by_service(encryption.master_key, master.wrap(secret, context))
        wanted = TopicKeyMake(
            topic=topic, label=label, master_key=encryption.master_key, wrapped=await wrapping
        )
        try:
            kept = await self._ask(Command.TOPIC_KEY_MAKE, wanted, TopicKey, give_up)
        except Conflict:
            await self._cluster.refresh()
            raise
        if kept.wrapped == wanted.wrapped:
            return DataKey(kept.id, topic, secret)
        return await self._opened(kept)

    async def _ask(
        self, command: int, record: TopicKeyMake | TopicKeyFind, answer: type[T], give_up: float
    ) -> T:
        """Ask a meta server until one answers or it is too late."""
        while True:
            try:
                return await self._cluster.ask_meta(command, record, answer)
            except TernError as error:
                if not error.retryable:
                    raise
                if self._now() + PAUSE_S > give_up:
                    raise _not_in_time(record.topic) from error
            await asyncio.sleep(PAUSE_S)

    # For what is read.

    def ready(self, view: BatchView, then: Callable[[], None]) -> bool:
        """Is it known of every key of this batch whether there is one? Else they are fetched, and
        `then` is called."""
        unknown = self._unknown(keys_of(view))
        if not unknown:
            return True
        if then not in self._waiting:
            self._waiting.append(then)
        if not unknown <= self._fetching:
            self._fetching |= unknown
            self._background.task(self._fetch_then(unknown), name="tern-keys")
        return False

    async def _fetch_then(self, unknown: set[KeyName]) -> None:
        try:
            await self._fetch(unknown)
        finally:
            self._fetching -= unknown
            self._wake()

    def _failed(self, error: TernError) -> None:
        """By a bug, which is in the log; who waits asks again."""

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    async def _fetch(self, names: set[KeyName]) -> None:
        """Find these keys; what fails is told by `open`."""
        by_topic: dict[str, list[int]] = {}
        for topic, id in sorted(self._unknown(names)):
            by_topic.setdefault(topic, []).append(id)
        for topic, ids in by_topic.items():
            for first in range(0, len(ids), ASKED_MAX):
                await self._find(topic, ids[first : first + ASKED_MAX])

    def open(self, view: BatchView, ranges: RowRanges) -> OpenedBodies:
        """What the bodies of these rows say, now also in the view."""
        return open_batch(view, ranges, self._known)

    async def open_all(self, views: Sequence[tuple[BatchView, RowRanges]]) -> None:
        """Fetch what is needed for those that are encrypted, and open them."""
        sealed = [(view, ranges) for view, ranges in views if view.sealed]
        if sealed:
            await self._fetch(set[KeyName]().union(*(keys_of(view) for view, _ in sealed)))
            for view, ranges in sealed:
                self.open(view, ranges)

    def _unknown(self, names: set[KeyName]) -> set[KeyName]:
        now = self._now()
        return {name for name in names if self._by_id.get(name, (None, 0.0))[1] <= now}

    def _known(self, name: KeyName) -> DataKey:
        found = self._by_id.get(name, (None, 0.0))[0]
        if isinstance(found, DataKey):
            return found
        raise found or KeyNotFound(f"data key {name[1]} of topic {name[0]!r} was not found in time")

    async def _find(self, topic: str, ids: list[int]) -> None:
        found: dict[int, DataKey | TernError]
        asked = TopicKeyFind(topic=topic, ids=ids)
        stale = {id: self._by_id[topic, id][0] for id in ids if (topic, id) in self._by_id}
        give_up = self._now() + (PAUSE_S if len(stale) == len(ids) else WAIT_S)
        try:
            answer = await self._ask(Command.TOPIC_KEY_FIND, asked, TopicKeys, give_up)
            found = {key.id: await self._openable(key) for key in answer.keys}
        except TernError as error:
            why = KeyNotFound(f"data keys of topic {topic!r}: {error.message}", **error.details)
            known = stale if _in_vain(error) else {}
            found = {id: key if isinstance(key, DataKey) else why for id, key in known.items()}
            found = dict.fromkeys(ids, why) | found
        for id in ids:
            unknown = KeyNotFound(
                f"topic {topic!r} has no data key {id}: the registry is older than the message, or "
                "the message came from another cluster; import it again from where it can be read"
            )
            self._keep(self._by_id, (topic, id), found.get(id, unknown))

    async def _openable(self, kept: TopicKey) -> DataKey | TernError:
        if kept.erased:
            return Erased(f"this message of topic {kept.topic!r} was erased: its key is deleted")
        try:
            return await self._opened(kept)
        except TernError as error:
            return error

    async def _opened(self, kept: TopicKey) -> DataKey:
        master = self._masters.find(kept.master_key, kept.topic)
        context = context_of(kept.master_key, kept.topic, kept.label)
        secret = await _by_service(kept.master_key, master.unwrap(kept.wrapped, context))
        return DataKey(kept.id, kept.topic, secret)

    async def rewrap(self, topic: str, master_key: str, ids: Sequence[int]) -> int:
        """Wrap these data keys of a topic by this master key; how many were not before. Both
        master keys are here; erased ones are left out."""
        master = self._masters.find(master_key, topic)
        asked = TopicKeyFind(topic=topic, ids=list(ids))
        done = 0
        for kept in (await self._cluster.ask_meta(Command.TOPIC_KEY_FIND, asked, TopicKeys)).keys:
            if kept.erased or kept.master_key == master_key:
                continue
            old = self._masters.find(kept.master_key, topic)
            before = context_of(kept.master_key, topic, kept.label)
            secret = await _by_service(kept.master_key, old.unwrap(kept.wrapped, before))
            context = context_of(master_key, topic, kept.label)
            wrapped = await _by_service(master_key, master.wrap(secret, context))
            # What is deleted next is the only other way to it: it has to open.
            if await _by_service(master_key, master.unwrap(wrapped, context)) != secret:
                raise KeyNotFound(f"master key {master_key!r} does not give back what it wrapped")
            wanted = TopicKeyRewrap(
                topic=topic, id=kept.id, known=kept.wrapped, master_key=master_key, wrapped=wrapped
            )
            await self._cluster.ask_meta(Command.TOPIC_KEY_REWRAP, wanted, TopicKey)
            done += 1
        return done

    def _keep(self, where: dict[Any, HeldKey], name: object, found: DataKey | TernError) -> None:
        while len(where) >= KEYS_KEPT_MAX:
            del where[next(iter(where))]
        kept_s = KEY_KEPT_S if isinstance(found, DataKey | Erased) else REASON_KEPT_S
        where.pop(name, None)
        where[name] = (found, self._now() + kept_s)


def subject_label(subject: str) -> str:
    """Subjects are known to servers by their digest only."""
    return f"s{subject_digest(subject)}"


def subject_digest(subject: str) -> str:
    try:
        written = subject.encode()
    except UnicodeEncodeError:
        raise BadRequest("subject has half of a surrogate pair: it is not Unicode") from None
    return sha256(b"tern subject\0" + written).hexdigest()


def _labels(period: str, rows: Sequence[Row]) -> list[str]:
    """Of the keys that rows are encrypted under."""
    subjects = {None if isinstance(row, bytes) else row.subject for row in rows}
    return [period if each is None else subject_label(each) for each in subjects]


async def _by_service(name: str, work: Awaitable[bytes]) -> bytes:
    """What an application's own key service raises is told as ours; its text may say too much."""
    try:
        return await work
    except (TernError, asyncio.CancelledError, TimeoutError):
        raise
    except Exception as error:
        raise KeyNotFound(
            f"the master key {name!r} could not be used: its service raised {type(error).__name__}"
        ) from error


def _not_in_time(topic: str) -> KeyNotFound:
    return KeyNotFound(
        f"no meta server answered in time about the keys of encrypted topic {topic!r}: check that "
        "one runs; what was to be sent is not stored",
        in_vain=True,
    )


def _in_vain(error: TernError) -> bool:
    """Nobody answered: there may well be a key."""
    return bool(error.details.get("in_vain"))
