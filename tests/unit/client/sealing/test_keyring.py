"""The keyring: keys found, made and kept for a while, and batches that are hostile."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ternmq.batch.encoder import Origin, Outgoing, encode_messages, with_seals
from ternmq.batch.layout import Encoding
from ternmq.batch.rows.cut import cut, thin
from ternmq.batch.rows.merge import ChosenRows, merge, take
from ternmq.batch.rows.pick import PickedView, pick
from ternmq.batch.seal import key_of
from ternmq.batch.view import BatchView
from ternmq.client.model.delivery import BACK
from ternmq.client.sealing.decryption import closed_outcome
from ternmq.client.sealing.keyring import KEY_KEPT_S, REASON_KEPT_S, ClientKeys, Keyring
from ternmq.core.errors import Corrupt, Erased, KeyNotFound, TernError, Unavailable
from ternmq.core.ids import ProducerId
from ternmq.security.sealing.master_keys import MasterKeys
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.servers import Encryption, Routes
from ternmq.wire.messages.topics import TopicKey, TopicKeyFind, TopicKeyMake, TopicKeys
from ternmq.wire.record import Record

PRODUCER = ProducerId(start_ms=9, random=9)
DAY_MS = 86_400_000
ENCRYPTED = {"orders": Encryption(master_key="shop", period_ms=DAY_MS)}


class Service:
    """A key service that does nothing, or fails."""

    failure: Exception | None = None

    async def wrap(self, key: bytes, context: bytes, /) -> bytes:
        if self.failure is not None:
            raise self.failure
        return context + b"|" + key

    async def unwrap(self, wrapped: bytes, context: bytes, /) -> bytes:
        if self.failure is not None:
            raise self.failure
        assert wrapped.startswith(context + b"|")
        return wrapped.removeprefix(context + b"|")


class Meta:
    """The cluster as a keyring sees it: keys by number."""

    def __init__(self) -> None:
        self.known_routes: Routes | None = Routes(version=1, servers=[], encrypted=ENCRYPTED)
        self.on_routes: list[Callable[[], None]] = []
        self.keys: list[TopicKey] = []
        self.asked = 0
        self.failure: TernError | None = None
        self.hurry: Ring | None = None
        """Time passes while it does not answer."""

    async def ask_meta(self, command: int, record: Record, answer: type[Any]) -> Any:
        self.asked += 1
        if self.failure is not None:
            if self.hurry is not None:
                self.hurry.now += 20
            raise self.failure
        if isinstance(record, TopicKeyMake):
            for key in self.keys:
                if (key.topic, key.label, key.erased) == (record.topic, record.label, False):
                    return key
            key = TopicKey(
                id=len(self.keys) + 1,
                topic=record.topic,
                label=record.label,
                master_key=record.master_key,
                wrapped=record.wrapped,
            )
            self.keys.append(key)
            return key
        assert isinstance(record, TopicKeyFind)
        told = [key for key in self.keys if key.id in record.ids and key.topic == record.topic]
        return TopicKeys(keys=told)

    async def refresh(self) -> None: ...


class Ring:
    """A keyring, its cluster, its clocks."""

    def __init__(self, meta: Meta | None = None, names: tuple[str, ...] = ("shop",)) -> None:
        self.meta = meta or Meta()
        self.service = Service()
        self.now = 100.0
        self.clock = TurnedClock()
        masters = MasterKeys(dict.fromkeys(names, self.service))
        keys = ClientKeys(masters=masters, clock=self.clock)
        self.keyring = Keyring(self.meta, keys, lambda: self.now)

    async def batch(self, rows: list[Outgoing], first: int = 0, topic: str = "orders") -> bytearray:
        await self.keyring.prepare("orders", rows)
        sealed = with_seals(
            rows, *self.keyring.seal("orders", rows, (PRODUCER, first), Encoding.ZSTD)
        )
        origin = Origin(topic=topic, app="a", producer=PRODUCER, sealed=True)
        return encode_messages(sealed, origin=origin, first_sequence=first, encoding=Encoding.PLAIN)

    async def bodies(self, view: BatchView, rows: list[int] | None = None) -> list[Any]:
        """Bodies, or the kind of error in their place."""
        rows = list(range(view.count)) if rows is None else rows
        ranges = [(row, row + 1) for row in rows]
        await self.keyring.open_all([(view, ranges)])
        return [
            type(view.why_closed(row)) if view.why_closed(row) else view.body(row) for row in rows
        ]


def rows_of(count: int, **options: Any) -> list[Outgoing]:
    return [Outgoing(body=b"body %d" % at, born_at_ms=1, **options) for at in range(count)]


async def test_what_one_client_encrypts_another_opens() -> None:
    one = Ring()
    batch = await one.batch(rows_of(3))
    other = Ring(one.meta)

    assert b"body" not in batch
    assert await other.bodies(BatchView(batch)) == [b"body 0", b"body 1", b"body 2"]


async def test_two_producers_of_one_topic_and_period_use_one_key() -> None:
    one = Ring()
    await one.batch(rows_of(1))
    other = Ring(one.meta)
    batch = await other.batch(rows_of(1), first=50)

    assert len(one.meta.keys) == 1
    assert await one.bodies(BatchView(batch)) == [b"body 0"]


async def test_another_period_has_another_key_and_old_messages_stay_readable() -> None:
    ring = Ring()
    before = await ring.batch(rows_of(1))
    ring.clock.turn(2 * 86_400)
    assert ring.keyring.lacks("orders", [b"x"])
    after = await ring.batch(rows_of(1), first=5)

    assert len(ring.meta.keys) == 2
    assert await ring.bodies(BatchView(before)) == await ring.bodies(BatchView(after))


async def test_a_repeat_is_the_same_bytes() -> None:
    ring = Ring()

    assert await ring.batch(rows_of(5)) == await ring.batch(rows_of(5))
    assert await ring.batch(rows_of(5)) != await ring.batch(rows_of(5), first=1)


async def test_cut_thinned_and_picked_rows_open() -> None:
    ring = Ring()
    batch = await ring.batch(rows_of(10))
    part = cut(batch, 3, 6)
    picked = pick(batch, [(2, 3), (7, 9)])
    assert picked is not None

    assert await ring.bodies(BatchView(part.batch)) == [b"body 3", b"body 4", b"body 5"]
    assert await ring.bodies(BatchView(thin(batch, [(4, 5)])), [4]) == [b"body 4"]
    view = PickedView(picked, [(2, 3), (7, 9)])
    assert await ring.bodies(view, [2, 7, 8]) == [b"body 2", b"body 7", b"body 8"]


async def test_rows_that_were_merged_with_others_open() -> None:
    """As a delay server merges them: sealed and plain ones, of several batches, in any order."""
    ring = Ring()
    one, two = await ring.batch(rows_of(4)), await ring.batch(rows_of(4), first=50)
    origin = Origin(topic="orders", app="a", producer=PRODUCER)
    plain = encode_messages(rows_of(2), origin=origin, first_sequence=90)
    chosen = [
        ChosenRows(BatchView(two), np.array([3, 0])),
        ChosenRows(BatchView(plain), np.array([1])),
        ChosenRows(BatchView(one), np.array([2])),
    ]
    other = Origin(topic="orders", app="%delay", producer=ProducerId(start_ms=1, random=2))

    merged = BatchView(merge(chosen, origin=other, first_sequence=7))
    taken = BatchView(take(BatchView(one), np.array([1, 3])))

    assert await ring.bodies(merged) == [b"body 3", b"body 0", b"body 1", b"body 2"]
    assert await ring.bodies(taken) == [b"body 1", b"body 3"]


async def test_a_subject_has_a_key_of_its_own_and_when_it_is_erased_only_that_is_gone() -> None:
    ring = Ring()
    rows = [*rows_of(1, subject="ada"), *rows_of(1, subject="bob"), *rows_of(1)]
    batch = await ring.batch(rows)
    assert {key.label[0] for key in ring.meta.keys} == {"s", "p"}
    erased = key_of(BatchView(batch).seals()[0] or b"")
    ring.meta.keys = [
        TopicKey(id=key.id, topic=key.topic, erased=True) if key.id == erased else key
        for key in ring.meta.keys
    ]

    assert await ring.bodies(BatchView(batch)) == [Erased, b"body 0", b"body 0"]


async def test_a_kept_key_is_asked_for_again_so_an_erased_one_goes() -> None:
    ring = Ring()
    batch = await ring.batch(rows_of(1, subject="ada"))
    assert await ring.bodies(BatchView(batch)) == [b"body 0"]
    [key] = ring.meta.keys
    ring.meta.keys = [TopicKey(id=key.id, topic=key.topic, erased=True)]
    asked = ring.meta.asked
    assert await ring.bodies(BatchView(batch)) == [b"body 0"]
    assert ring.meta.asked == asked
    ring.now += KEY_KEPT_S + 1

    assert await ring.bodies(BatchView(batch)) == [Erased]
    again = await ring.batch(rows_of(1, subject="ada"), first=9)
    assert await ring.bodies(BatchView(again)) == [b"body 0"]


async def test_a_failure_is_told_and_tried_again_a_moment_later() -> None:
    ring = Ring()
    ring.meta.failure = KeyNotFound("not today")
    await ring.keyring.prepare("orders", [b"x"])
    with pytest.raises(KeyNotFound, match="not today"):
        ring.keyring.seal("orders", [b"x"], (PRODUCER, 0), Encoding.PLAIN)
    ring.meta.failure = None
    assert not ring.keyring.lacks("orders", [b"x"])
    ring.now += REASON_KEPT_S + 1

    assert ring.keyring.lacks("orders", [b"x"])
    await ring.batch(rows_of(1))


async def test_while_no_meta_server_answers_known_keys_go_on_and_others_are_waited_for() -> None:
    ring = Ring()
    batch = await ring.batch(rows_of(1))
    about = await ring.batch(rows_of(1, subject="ada"), first=9)
    assert await ring.bodies(BatchView(about)) == [b"body 0"]
    ring.meta.failure = Unavailable("away")
    ring.meta.hurry = ring
    ring.now += KEY_KEPT_S + 1

    assert not ring.keyring.lacks("orders", [b"x"]), "keys of periods stay"
    assert await ring.bodies(BatchView(about)) == [b"body 0"]
    ring.clock.turn(2 * 86_400)
    later = await ring.batch(rows_of(1), first=20)  # The key of the period before.
    unseen = BatchView(batch)
    assert await ring.bodies(unseen) == [KeyNotFound]
    why = unseen.why_closed(0)
    assert why is not None
    assert closed_outcome(why) is BACK
    ring.meta.failure = None
    ring.now += REASON_KEPT_S + 1
    assert await ring.bodies(BatchView(later)) == await ring.bodies(BatchView(batch))


async def test_another_master_key_has_keys_of_its_own() -> None:
    ring = Ring(names=("shop", "new"))
    await ring.batch(rows_of(1))
    other = Encryption(master_key="new", period_ms=DAY_MS)
    ring.meta.known_routes = Routes(version=2, servers=[], encrypted={"orders": other})
    ring.meta.on_routes[0]()
    await ring.batch(rows_of(1), first=9)

    assert [key.master_key for key in ring.meta.keys] == ["shop", "new"]


async def test_a_key_service_that_fails_is_told_without_what_it_said() -> None:
    ring = Ring()
    ring.service.failure = RuntimeError("secret-canary")
    await ring.keyring.prepare("orders", [b"x"])

    with pytest.raises(KeyNotFound, match=r"'shop' could not be used.*RuntimeError") as refused:
        ring.keyring.seal("orders", [b"x"], (PRODUCER, 0), Encoding.PLAIN)
    assert "canary" not in str(refused.value)


async def test_a_body_under_the_key_of_another_topic_does_not_open() -> None:
    ring = Ring()
    stolen = await ring.batch(rows_of(2), topic="pay")
    origin = {"%topic": "orders"}
    letter = await ring.batch(rows_of(2, properties=origin), topic="%dead.billing")

    # Asked for by its own topic, no key is told; and nothing is spoilt for the right topic.
    assert await ring.bodies(BatchView(stolen)) == [KeyNotFound, KeyNotFound]
    assert await ring.bodies(BatchView(await ring.batch(rows_of(1)))) == [b"body 0"]
    assert await ring.bodies(BatchView(stolen)) == [KeyNotFound, KeyNotFound]
    assert await ring.bodies(BatchView(letter)) == [b"body 0", b"body 1"]


async def test_an_unknown_key_is_named() -> None:
    ring = Ring()
    batch = await ring.batch(rows_of(1))
    ring.meta.keys = []
    view = BatchView(batch)

    assert await ring.bodies(view) == [KeyNotFound]
    assert "no data key 1" in str(view.why_closed(0))


async def test_hostile_batches_become_errors_of_their_rows() -> None:
    """Seals and bodies swapped, cut, flipped, headers replayed: each row opens or says why."""
    rng = random.Random(29)
    ring = Ring()
    rows = [Outgoing(body=b"body %d" % at, born_at_ms=1) for at in range(6)]
    good = await ring.batch(rows)
    view = BatchView(good)
    seals, bodies = view.seals(), view.bodies()
    for _ in range(300):
        made_seals, made_bodies = list(seals), list(bodies)
        touched = set(rng.sample(range(6), rng.randrange(1, 4)))
        for at in touched:
            other = (at + rng.randrange(1, 6)) % 6
            match rng.randrange(4):
                case 0:
                    made_bodies[at] = bodies[other]
                case 1:
                    made_seals[at] = seals[other]
                case 2:
                    made_bodies[at] = bodies[at][: rng.randrange(len(bodies[at]))]
                case _:
                    made_bodies[at], made_seals[at] = bodies[other], seals[other]
        origin = Origin(topic="orders", app="a", producer=PRODUCER, sealed=True)
        hostile = encode_messages(
            [
                Outgoing(body=body, seal=seal, born_at_ms=1)
                for body, seal in zip(made_bodies, made_seals, strict=True)
            ],
            origin=origin,
            first_sequence=0,
        )

        found = await ring.bodies(BatchView(hostile))

        assert [found[at] for at in range(6) if at not in touched] == [
            b"body %d" % at for at in range(6) if at not in touched
        ]
        assert {found[at] for at in touched} == {Corrupt}
