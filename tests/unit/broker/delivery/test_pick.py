"""Which rows a consumer gets next: new ones, returned ones, by filter, by key, by priority."""

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.selector.filter import parse_filter
from ternmq.batch.view import BatchView
from ternmq.broker.delivery.handout import Handout
from ternmq.broker.delivery.pick import RowPicker
from ternmq.broker.groups.consumer_group import ConsumerGroup, WaitingPull
from ternmq.core.ids import ProducerId
from ternmq.core.slots import slot_of
from ternmq.core.units import MIB
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.pull.record import PullKind, PullRecord
from tests.unit.broker.group_builders import a_consumer, a_group, hand_out, some_groups

ORIGIN = Origin(topic="orders", app="shop", producer=ProducerId(1_700_000_000_000, 7))
LEASE_MS = 5_000
Rows = list[tuple[int, int]]


class StoredBatches:
    """A `Lookup` over batches in memory; those in `cold` would have to be read first."""

    def __init__(self, *batches: list[Outgoing], first: int = 0) -> None:
        self._batches: dict[int, tuple[ConsumeEntry, BatchView]] = {}
        self.cold: set[int] = set()
        self.viewed: list[int] = []
        self.fed: list[ConsumerGroup] = []
        for rows in batches:
            view = BatchView(encode_messages(rows, origin=ORIGIN, first_sequence=first))
            bloom = 2**64 - 1
            highest = max(row.priority for row in rows)
            entry = ConsumeEntry(first, 100 * first, 100 * len(rows), len(rows), 0, bloom, highest)
            self._batches[first] = (entry, view)
            first += len(rows)

    def entries(
        self, group: ConsumerGroup, sequence: int, *, rows_max: int = 1_000, size_max: int = MIB
    ) -> list[ConsumeEntry] | None:
        found = [e for e, _ in self._batches.values() if e.base_sequence + e.count > sequence]
        return None if self.cold & {entry.base_sequence for entry in found[:1]} else found

    def view(self, group: ConsumerGroup, entry: ConsumeEntry) -> BatchView | None:
        self.viewed.append(entry.base_sequence)
        return self._batches[entry.base_sequence][1]

    def feed_soon(self, group: ConsumerGroup) -> None:
        self.fed.append(group)


class Picking:
    """One group, one consumer, and a picker between them."""

    def __init__(self, group: ConsumerGroup, stored: StoredBatches, held: set[int] | None = None):
        self.group = group
        self.stored = stored
        groups, self.written = some_groups(group)
        self.consumer = a_consumer(group)
        self._picker = RowPicker(
            groups=groups, lookup=stored, lease_ms=LEASE_MS, held_slots=lambda _: held or ()
        )

    def take(self, rows_max: int = 1_000, size_max: int = MIB) -> Rows:
        handout, rows, _ = self._picker.take(self.group, self._pull(), rows_max, size_max)
        self.group.lane.ledger()
        found = [] if handout is None else sequences(handout)
        assert rows == sum(end - first for first, end in found)
        return found

    def suspect(self) -> Handout | None:
        return self._picker.take_suspect(self.group, self._pull())

    def _pull(self) -> WaitingPull:
        return WaitingPull(self.consumer, 1, rows_max=1_000, size_max=MIB, cold=False)

    def kinds(self) -> list[PullKind]:
        return [record.kind for record in self.written]

    def last(self) -> PullRecord:
        return self.written[-1]


def sequences(handout: Handout) -> Rows:
    return [
        (piece.entry.base_sequence + first, piece.entry.base_sequence + end)
        for piece in handout.slices
        for first, end in piece.selection
    ]


def plain(count: int, **fields: object) -> list[Outgoing]:
    return [Outgoing(body=b"x", **fields) for _ in range(count)]  # type: ignore[arg-type]


def keyed(*keys: str | None) -> list[Outgoing]:
    return [Outgoing(body=b"x", order_key=key) for key in keys]


# -- new rows


def test_new_rows_go_out_as_whole_batches_and_the_rest_waits() -> None:
    picking = Picking(a_group(end=30), StoredBatches(plain(10), plain(10), plain(10)))

    assert picking.take(rows_max=25) == [(0, 10), (10, 20)]
    assert picking.take(rows_max=25) == [(20, 30)]
    assert picking.take() == []
    assert picking.kinds() == [PullKind.HANDED_OUT, PullKind.HANDED_OUT]


def test_the_first_batch_is_cut_to_what_is_wanted() -> None:
    picking = Picking(a_group(end=10), StoredBatches(plain(10)))

    assert picking.take(rows_max=4) == [(0, 4)]
    assert picking.take(rows_max=4) == [(4, 8)]


def test_the_last_batch_is_cut_where_the_others_are_less_than_half() -> None:
    picking = Picking(a_group(end=110), StoredBatches(plain(10), plain(100)))

    assert picking.take(rows_max=50) == [(0, 10), (10, 50)]


def test_bytes_bound_a_pull_but_one_batch_always_goes() -> None:
    picking = Picking(a_group(end=20), StoredBatches(plain(10), plain(10)))

    assert picking.take(size_max=1_500) == [(0, 10)]
    assert picking.take(size_max=1) == [(10, 20)]


def test_rows_that_are_gone_from_the_log_are_counted_as_expired() -> None:
    picking = Picking(a_group(end=20), StoredBatches(plain(10), first=10))

    assert picking.take() == [(10, 20)]
    assert picking.kinds() == [PullKind.EXPIRED, PullKind.HANDED_OUT]
    assert picking.group.lane.expired == 10


def test_only_what_is_safe_goes_out() -> None:
    picking = Picking(a_group(end=12), StoredBatches(plain(10), plain(10)))

    assert picking.take() == [(0, 10), (10, 12)]


def test_positions_that_have_to_be_read_first_give_nothing_now() -> None:
    picking = Picking(a_group(end=10), StoredBatches(plain(10)))
    picking.stored.cold = {0}

    assert picking.take() == []
    assert picking.written == []


def test_a_paused_group_gets_nothing() -> None:
    assert Picking(a_group(end=10, paused=True), StoredBatches(plain(10))).take() == []


# -- rows that came back


def test_returned_rows_go_first_and_take_at_most_half() -> None:
    picking = Picking(a_group(end=30), StoredBatches(plain(20), plain(10)))
    lease = hand_out(picking.group, 20)
    picking.group.lane.give_back(lease, 0, 20)

    assert picking.take(rows_max=20) == [(0, 10), (20, 30)]
    assert picking.take(rows_max=20) == [(10, 20)], "nothing new waits: all of it"


def test_returned_rows_keep_their_attempts() -> None:
    picking = Picking(a_group(end=4), StoredBatches(plain(4)))
    lease = hand_out(picking.group, 4, number=9, attempt=3)
    picking.group.lane.give_back(lease, 1, 3)

    assert picking.take() == [(1, 3)]
    assert picking.last().ranges == ((1, 3, 3),)


def test_a_suspect_goes_out_alone() -> None:
    picking = Picking(a_group(end=4), StoredBatches(plain(4)))
    lane = picking.group.lane
    lane.look_ahead(4)
    lane.poison.set(2, 3, 2)

    assert picking.take() == [(0, 2), (3, 4)]
    handout = picking.suspect()
    assert handout is not None
    assert handout.alone
    assert sequences(handout) == [(2, 3)]


# -- filters


def tagged(*tags: str) -> list[Outgoing]:
    return [Outgoing(body=b"x", tag=tag) for tag in tags]


def test_only_rows_that_pass_go_out_and_the_others_are_settled() -> None:
    group = a_group(end=6)
    group.filter = parse_filter("a", "")
    picking = Picking(group, StoredBatches(tagged("a", "b", "a"), tagged("b", "b", "a")))

    assert picking.take() == [(0, 1), (2, 3), (5, 6)]
    assert group.lane.filtered == 3
    assert picking.kinds() == [PullKind.FILTERED, PullKind.HANDED_OUT]


def test_where_nothing_passes_the_group_is_looked_at_again() -> None:
    group = a_group(end=3)
    group.filter = parse_filter("a", "")
    picking = Picking(group, StoredBatches(tagged("b", "b", "b")))

    assert picking.take() == []
    assert group.lane.filtered == 3
    assert picking.stored.fed == [group]


def test_rows_that_an_earlier_filter_chose_are_sifted_again() -> None:
    group = a_group(end=3)
    lease = hand_out(group, 3)
    group.lane.give_back(lease, 0, 3)
    group.filter = parse_filter("a", "")
    group.unsifted = 3
    picking = Picking(group, StoredBatches(tagged("a", "b", "a")))

    assert picking.take() == [(0, 1), (2, 3)]
    assert group.lane.filtered == 1


# -- in order


def test_of_every_key_only_the_first_row_goes_out() -> None:
    picking = Picking(a_group(end=5, ordered=True), StoredBatches(keyed("x", "x", "y", None, "y")))

    assert picking.take() == [(0, 1), (2, 4)]
    assert picking.take() == []
    first = picking.last().lease
    lane, order = picking.group.lane, picking.group.order
    assert order is not None
    order.apply(lane.ack(first, 0, 1, strict=True).changes, lane)
    assert picking.take() == [(1, 2)]


def test_a_key_whose_slot_is_held_waits() -> None:
    held = {slot_of("orders", "x")}
    picking = Picking(a_group(end=2, ordered=True), StoredBatches(keyed("x", "y")), held)

    assert picking.take() == [(1, 2)]
    order = picking.group.order
    assert order is not None
    assert order.held == {slot_of("orders", "x"): [0]}


def test_rows_beyond_the_size_go_back_to_their_chains() -> None:
    stored = StoredBatches(keyed("x", "y"), keyed("z"))
    picking = Picking(a_group(end=3, ordered=True), stored)

    assert picking.take(size_max=150) == [(0, 2)]
    assert picking.take(size_max=150) == [(2, 3)]


# -- by priority


def ranked(*priorities: int) -> list[Outgoing]:
    return [Outgoing(body=b"x", priority=priority) for priority in priorities]


def test_higher_priorities_go_first_and_within_one_the_oldest() -> None:
    picking = Picking(a_group(end=5, priority=True), StoredBatches(ranked(0, 5, 1, 5, 0)))

    assert picking.take(rows_max=3) == [(1, 2), (3, 4), (2, 3)]
    assert picking.take(rows_max=3) == [(0, 1), (4, 5)]


def test_batches_without_priorities_are_not_even_looked_into() -> None:
    stored = StoredBatches(ranked(0, 0), ranked(0, 9))
    picking = Picking(a_group(end=4, priority=True), stored)

    assert picking.take(rows_max=1) == [(3, 4)]
    assert stored.viewed == [2]
