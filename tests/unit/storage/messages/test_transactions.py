"""Transactions are made again from the log; what rotted there makes the store unsound."""

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.half import HalfInfo, pack_info
from ternmq.core.ids import ProducerId
from ternmq.storage.log.append import Append, Ending, HalfMark
from ternmq.storage.store import Store
from tests.unit.storage.builders import MESSAGE_0, Maker, fresh, reopened

INFO = HalfInfo(transaction=(7).to_bytes(16, "big"))


def a_half() -> Append:
    batch = encode_messages(
        [Outgoing(body=b"half", born_at_ms=33)],
        first_sequence=0,
        origin=Origin(topic="orders", app="shop", producer=ProducerId(11, 22)),
        transaction=pack_info(INFO),
    )
    return Append(
        batch=bytearray(batch),
        topic_id=1,
        count=1,
        received_at_ms=1,
        producer=(11, 22),
        first_sequence=0,
        special=HalfMark(info=INFO, app="shop"),
    )


def commit_of(store: Store) -> Append:
    halves = list(store.halves.open[INFO.key].halves)
    return Append(
        batch=bytearray(),
        topic_id=0,
        count=1,
        received_at_ms=1,
        producer=(0, 0),
        first_sequence=0,
        special=Ending(kind="commit", transactions=[INFO.key], halves=halves),
    )


def committed(store: Store, maker: Maker) -> int:
    """A transaction is open, then committed, and a checkpoint follows; where the commit lies."""
    for make in (a_half, lambda: commit_of(store)):
        staged = maker.put(store, make())
        store.halves.apply(staged.appends[0])
    store.checkpoint()
    return staged.appends[0].offset


def test_a_commit_is_known_after_a_restart() -> None:
    disk, store, maker = fresh()
    committed(store, maker)

    again = reopened(disk)

    assert not again.halves.open
    assert again.halves.outcomes[INFO.key].state == "committed"
    assert again.report.sound


def test_a_commit_that_rotted_is_damage_and_not_a_transaction_that_is_still_open() -> None:
    """Such a member must not lead while another has the decision: the transaction would be ended
    once more, and its messages there twice (simulation seed 20720)."""
    disk, store, maker = fresh()
    offset = committed(store, maker)
    disk.flip(MESSAGE_0, offset + 136)

    again = reopened(disk)

    assert [(hole.log, hole.offset) for hole in again.report.holes] == [("message", offset)]
    assert not again.report.sound
