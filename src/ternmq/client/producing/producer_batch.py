"""One encoded batch: the same bytes are sent again and again until they are answered.

A batch is cut from waiting messages; from then on its message ids are decided. It knows who waits
for it and until when it may be tried. It does no I/O.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from ternmq.batch.bare_bodies import one_row, pack_names, write_bare
from ternmq.batch.compression import MEAN_BODY_SIZE_MIN
from ternmq.batch.encoder import (
    Origin,
    Outgoing,
    encode_bodies,
    encode_messages,
    encode_sealed,
    with_seals,
)
from ternmq.batch.layout import Encoding
from ternmq.client.model.receipt import Dues, Published
from ternmq.client.producing.accumulator import OpenBatch
from ternmq.client.sealing.keyring import Keyring
from ternmq.core.errors import BadRequest, ReadOnly, SendUnknown, TernError, TooLarge, Unavailable
from ternmq.core.units import KIB

SINGLE_SIZE_MAX = 64 * KIB
"""Of a lone body that is known to fit any batch."""

OnDone = Callable[["ProducerBatch", TernError | None], None]


class SendWindow(NamedTuple):
    """Until when a batch is tried, after how many seconds without an answer it goes again, and how
    often in all; None: as often as there is time for."""

    deadline: float
    again_after: float
    tries_max: int | None = None


class ProducerBatch:
    """A batch, its place in line, and what happens when it is answered."""

    __slots__ = (
        "again_after",
        "bound",
        "data",
        "deadline",
        "finished",
        "on_done",
        "open_batch",
        "origin",
        "published",
        "refusal",
        "refusals",
        "refused_by",
        "sent_at",
        "serial",
        "transmitted",
        "tried",
        "tries",
        "tries_max",
        "trouble",
        "unanswered",
        "unencoded",
    )

    def __init__(
        self,
        open_batch: OpenBatch,
        published: Published,
        *,
        window: SendWindow,
        on_done: OnDone,
        bound: bool = False,
        origin: int = 0,
    ) -> None:
        self.open_batch = open_batch
        self.published = published
        self.deadline, self.again_after, self.tries_max = window
        self.on_done = on_done
        self.data = bytearray()
        self.serial = 0
        """Its place in line."""
        self.origin = origin
        """The place its message numbers were given out for; halves keep that of the whole."""
        self.sent_at = 0.0
        self.transmitted = False
        """Bytes of it may have reached a broker."""
        self.tries = 0
        """How often it was sent, or could not be sent."""
        self.refusals = 0
        self.refusal: TernError | None = None
        """What the broker said last, if it was a refusal."""
        self.trouble = ""
        """What kept it from being answered, the last time."""
        self.unanswered: list[float] = []
        """Epochs of the servers to which it was sent and that never said what became of it."""
        self.tried: list[str] = []
        """The groups that had it, this one included."""
        self.refused_by: set[str] = set()
        """The groups that said they cannot take it, by no fault of its own."""
        self.bound = bound
        """It stays with the group it was given to: its order key's slot lies there."""
        self.finished = False
        self.unencoded = False
        """Its rows did not become bytes, for a reason nobody thought of."""

    def encode(self, *, app: str, encoding: Encoding, keyring: Keyring | None = None) -> None:
        """Make the bytes; raises `TooLarge` when the rows do not fit one batch. With a keyring
        bodies are encrypted; raises why they cannot be."""
        open_batch, published = self.open_batch, self.published
        if keyring is None and open_batch.plain and open_batch.due is None:
            single = self._encode_single(app, encoding)
            if single is not None:
                self.data = single
                return
        origin = Origin(
            topic=published.topic,
            app=app,
            producer=published.producer,
            in_order=self.bound,
            sealed=keyring is not None,
        )
        bodies: Sequence[bytes] = ()
        seals: Sequence[bytes | None] = ()
        if keyring is not None:
            numbers = (published.producer, published.first_sequence)
            bodies, seals = keyring.seal(published.topic, open_batch.rows, numbers, encoding)
        if open_batch.plain:
            self.data = self._encode_plain(origin, encoding, bodies, seals)
            published.due = open_batch.due
            return
        messages = [
            row
            if isinstance(row, Outgoing)
            else Outgoing(body=row, born_at_ms=open_batch.born_at_ms)
            for row in open_batch.rows
        ]
        explicit = [message.explicit_id for message in messages]
        published.explicit_ids = explicit if explicit.count(None) < len(explicit) else None
        if messages[0].delay_ms is not None:
            published.due = Dues([message.delay_ms or 0 for message in messages], relative=True)
        elif messages[0].due_at_ms is not None:
            published.due = Dues([message.due_at_ms or 0 for message in messages], relative=False)
        self.data = encode_messages(
            messages if keyring is None else with_seals(messages, bodies, seals),
            origin=origin,
            first_sequence=published.first_sequence,
            encoding=encoding if keyring is None else Encoding.PLAIN,
        )

    def _encode_single(self, app: str, encoding: Encoding) -> bytearray | None:
        """A lone small body, by the shortest way; None: it is something else."""
        rows, published = self.open_batch.rows, self.published
        body: bytes = rows[0]  # type: ignore[assignment]
        small = SINGLE_SIZE_MAX if encoding is Encoding.PLAIN else MEAN_BODY_SIZE_MIN
        if len(rows) != 1 or len(body) > small:
            return None
        return write_bare(
            one_row(len(body)),
            body,
            names=pack_names(published.topic, app),
            producer=published.producer,
            first_sequence=published.first_sequence,
            born_at_ms=self.open_batch.born_at_ms,
        )

    def _encode_plain(
        self,
        origin: Origin,
        encoding: Encoding,
        bodies: Sequence[bytes],
        seals: Sequence[bytes | None],
    ) -> bytearray:
        """Bare bodies, or what became of them."""
        open_batch, first_sequence = self.open_batch, self.published.first_sequence
        if seals:
            return encode_sealed(
                bodies,
                seals,
                origin=origin,
                first_sequence=first_sequence,
                born_at_ms=open_batch.born_at_ms,
                due=open_batch.due,
            )
        return encode_bodies(
            open_batch.rows,  # type: ignore[arg-type]
            origin=origin,
            first_sequence=first_sequence,
            born_at_ms=open_batch.born_at_ms,
            encoding=encoding,
            due=open_batch.due,
        )

    def divisible(self, error: TernError | None) -> bool:
        """Is one of several rows to blame, so that its neighbours must not suffer?"""
        if len(self.open_batch.rows) == 1:
            return False
        if isinstance(self.published.due, Dues) and isinstance(error, BadRequest):
            return True  # One of them is too far ahead.
        return self.unencoded or isinstance(error, TooLarge)

    def halves(
        self, second_done: Callable[[int], OnDone] | None = None
    ) -> "tuple[ProducerBatch, ProducerBatch]":
        """The rows with their ids in two batches, not yet encoded. `second_done` makes who
        hears of the second one, by the row with which it begins."""
        first, second = self.open_batch.halves()
        whole, middle = self.published, len(first.rows)
        last_done = self.on_done if second_done is None else second_done(middle)
        made = [
            ProducerBatch(
                open_batch,
                Published(
                    whole.topic, whole.producer, whole.first_sequence + at, len(open_batch.rows)
                ),
                window=self.window,
                on_done=on_done,
                origin=self.origin,
            )
            for at, open_batch, on_done in ((0, first, self.on_done), (middle, second, last_done))
        ]
        return made[0], made[1]

    def again(self) -> "ProducerBatch":
        """The bytes of this batch for another broker group, where this may have stored them."""
        made = ProducerBatch(
            self.open_batch,
            self.published,
            window=self.window,
            on_done=self.on_done,
        )
        made.data = bytearray(self.data)
        made.transmitted = True
        made.unanswered = [inf] * len(self.unanswered)  # Epochs of another group say nothing.
        made.take_over(self)
        return made

    def take_over(self, before: "ProducerBatch") -> None:
        """This batch takes the place of one that another broker group had."""
        self.deadline, self.again_after, self.tries_max = before.window
        self.tried, self.refusals = before.tried, before.refusals + 1
        self.tries = before.tries
        self.refused_by = before.refused_by
        self.refusal, self.trouble = before.refusal, before.trouble

    @property
    def window(self) -> SendWindow:
        return SendWindow(self.deadline, self.again_after, self.tries_max)

    @property
    def tried_enough(self) -> bool:
        """As often as the application wants (R20, J9)."""
        return self.tries_max is not None and self.tries >= self.tries_max

    def sent_to(self, epoch: int) -> None:
        """This batch is on its way to a server; one that had no role yet may have any by now."""
        self.tries += 1
        self.unanswered.append(epoch or inf)

    def refused_by_epoch(self, epoch: int, error: TernError) -> None:
        """A server has certainly not stored what it was sent this time. One that leads in a later
        epoch and takes no messages has looked first whether it has this one: then nobody who led
        before has it either, and what they store now does not count."""
        if (epoch or inf) in self.unanswered:
            self.unanswered.remove(epoch or inf)
        if isinstance(error, ReadOnly) and epoch:
            self.unanswered = [sent for sent in self.unanswered if sent >= epoch]

    def abandon(self, bug: Exception) -> None:
        """Whoever still waits for a row hears that telling him failed."""
        error = TernError(f"what became of the message could not be told, by a bug: {bug!r}")
        for waiter in self.open_batch.waiters:
            if waiter is not None and not waiter.done():
                waiter.set_exception(error.copy())

    def overdue(self) -> TernError:
        """The error for the caller when time is up."""
        published = self.published
        if self.refusal is not None and not self.unanswered:
            return self.refusal
        when = f"in {self.tries} tries" if self.tried_enough else "in time"
        if self.transmitted:
            last = f" (last: {self.trouble})" if self.trouble else ""
            look = "mq.find(id=…) or 'tern find --id'"
            if published.due is not None:
                look = "mq.admin.delays.rows(id=…)"
            return SendUnknown(
                f"no answer about a message to {published.topic!r} {when}{last}: it may or may "
                f"not be stored; look for it by its id (error.ids) with {look} before sending it "
                "again"
            )
        return Unavailable(
            f"no broker took {published.count} message(s) to {published.topic!r} {when}; they "
            "are not stored: check that the broker runs and that its address can be reached"
        )
