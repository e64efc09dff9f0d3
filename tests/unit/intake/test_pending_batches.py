"""Repeats of batches that are stored or on their way: answered once each, stored once (D3)."""

from collections.abc import Callable
from typing import Any

import pytest

from ternmq.batch.check import Incoming, check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.core.errors import BadRequest, SequenceTooOld, TernError, Unavailable
from ternmq.intake.pending_batches import (
    AnswerFlags,
    PendingBatch,
    PendingBatches,
    answer_repeat,
    append_of,
)
from ternmq.rpc.address import Endpoints
from ternmq.storage.messages.producers import ProducerTable, StoredBatch
from ternmq.wire.frame import Frame
from ternmq.wire.messages.publish import (
    PUBLISHED,
    PUBLISHED_REPLICATED,
    PUBLISHED_SAFETY,
    PUBLISHED_SYNCED,
    PUBLISHED_TRACED,
    PUBLISHED_WRITTEN,
)
from ternmq.wire.numbers import Command
from tests.lone_gate import LoneGate
from tests.unit.batch.builders import a_batch


class Sender:
    """As much of a `Peer` as pending batches use: a socket is the integration tests' part."""

    def __init__(self) -> None:
        self.held = 0
        self.answers: list[tuple[int, tuple[int, ...]]] = []
        self.errors: list[tuple[int, TernError]] = []
        self.endpoints = Endpoints(b"c" * 16, 5, b"s" * 16, 7)

    def hold(self, size: int) -> None:
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size

    def answer(self, command: int, correlation: int, receipt: bytes) -> None:
        assert command == Command.PUBLISH
        self.answers.append((correlation, PUBLISHED.unpack(receipt)))

    def fail(self, command: int, correlation: int, error: TernError) -> None:
        self.errors.append((correlation, error))


BATCH = a_batch([Outgoing(body=b"x")] * 3, stamped=False)
INCOMING = check_incoming(BATCH)


def started(
    sender: Sender, producers: ProducerTable
) -> tuple["PendingBatches[PendingBatch]", PendingBatch]:
    batches: PendingBatches[PendingBatch] = PendingBatches(
        "the test", producers, AnswerFlags(LoneGate(), synced=True, traced=False)
    )
    append = append_of(BATCH, INCOMING, 7, 1_000, sender.endpoints)
    pending = PendingBatch(append, sender, 1)  # type: ignore[arg-type]
    batches.add(pending)
    return batches, pending


def test_everybody_who_repeats_a_batch_on_its_way_is_answered_once_it_is_safe() -> None:
    first, second = Sender(), Sender()
    batches, pending = started(first, ProducerTable())
    assert batches.joins(second, 9, INCOMING)  # type: ignore[arg-type]
    assert (first.held, second.held) == (len(BATCH), 0)

    pending.append.base_sequence = 40
    batches.remove(pending)
    pending.answer(2_000)

    assert first.answers == [(1, (7, 40, 2_000, 3, 0))] and first.held == 0
    assert second.answers == [(9, (7, 40, 2_000, 3, 1))], "told that it is a repeat"
    assert not batches.joins(second, 10, INCOMING)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [{"topic": "another"}, {"app": "another"}, {"row_count": 2}],
    ids=["topic", "application", "rows"],
)
def test_another_batch_under_the_numbers_of_one_on_its_way_does_not_wait_for_that(
    other: dict[str, Any],
) -> None:
    second = Sender()
    batches, pending = started(Sender(), ProducerTable())
    with pytest.raises(BadRequest, match="no repeat, and it is not stored"):
        batches.joins(second, 9, INCOMING._replace(**other))  # type: ignore[arg-type]
    pending.append.base_sequence = 40
    pending.answer(2_000)
    assert not second.answers


def test_everybody_who_waits_hears_why_a_batch_is_not_stored() -> None:
    first, second = Sender(), Sender()
    batches, pending = started(first, ProducerTable())
    batches.joins(second, 9, INCOMING)  # type: ignore[arg-type]
    batches.remove(pending)
    pending.fail(Unavailable("no disk"))

    assert [(at, error.code) for at, error in first.errors] == [(1, "unavailable")]
    assert [(at, error.code) for at, error in second.errors] == [(9, "unavailable")]


def test_a_repeat_of_a_stored_batch_gets_the_first_ones_receipt() -> None:
    producers, sender = ProducerTable(), Sender()
    batches, pending = started(sender, producers)
    stored = StoredBatch(topic_id=7, base_sequence=40, stored_at_ms=2_000)
    assert batches.stored(INCOMING) is None
    producers.remember(INCOMING.producer, INCOMING.first_sequence, 3, stored)
    batches.remove(pending)

    found = batches.stored(INCOMING)
    assert found == stored
    answer_repeat(sender, 4, found, 3)  # type: ignore[arg-type]
    assert sender.answers == [(4, (7, 40, 2_000, 3, 1))]


def test_what_may_be_forgotten_is_refused_and_says_to_look_first() -> None:
    producers = ProducerTable(batches_max=1)
    for number in range(200):
        stored = StoredBatch(topic_id=7, base_sequence=number, stored_at_ms=1)
        producers.remember(INCOMING.producer, 1_000 + number, 1, stored)
    batches, _ = started(Sender(), producers)

    with pytest.raises(SequenceTooOld, match=r"than what the test remembers.*look for the message"):
        batches.stored(INCOMING)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (lambda: Unavailable("registry away"), "registry away"),
        (lambda: RuntimeError("secret detail"), "failed to handle this request"),
    ],
)
async def test_what_cannot_be_judged_yet_is_answered_whatever_comes_of_it(
    failure: Callable[[], Exception], told: str
) -> None:
    sender = Sender()
    batches, _ = started(Sender(), ProducerTable())

    async def work() -> None:
        assert sender.held == len(BATCH), "counted while it waits"
        raise failure()

    frame = Frame(Command.PUBLISH, 0, 5, BATCH)
    batches.later(sender, frame, work())  # type: ignore[arg-type]
    await batches.finish()

    [(correlation, error)] = sender.errors
    assert correlation == 5 and told in error.message and "secret" not in error.message
    assert sender.held == 0


def test_a_batch_carries_where_it_came_from_and_what_its_rows_have() -> None:
    rows = [Outgoing(body=b"x", key="k", priority=4)]
    batch = a_batch(rows, stamped=False)
    incoming: Incoming = check_incoming(batch)
    append = append_of(batch, incoming, 7, 5, Sender().endpoints)

    assert (append.client_ip, append.client_port) == (b"c" * 16, 5)
    assert (append.priority, append.searchable, append.received_at_ms) == (4, True, 5)


@pytest.mark.parametrize(
    ("synced", "alone"), [(True, PUBLISHED_SYNCED), (False, PUBLISHED_WRITTEN)]
)
def test_what_replicas_have_is_called_so_only_while_they_are_waited_for(
    synced: bool, alone: int
) -> None:
    gate = LoneGate()
    flags = AnswerFlags(gate, synced=synced, traced=False)
    assert flags.now == alone

    gate.copied = True
    assert flags.now == PUBLISHED_REPLICATED

    gate.copied = False  # The last replica left the set.
    assert flags.now == alone


def test_the_trace_is_said_apart_from_the_safety() -> None:
    flags = AnswerFlags(LoneGate(), synced=True, traced=True)

    assert flags.now & PUBLISHED_TRACED
    assert flags.now & PUBLISHED_SAFETY == PUBLISHED_SYNCED
