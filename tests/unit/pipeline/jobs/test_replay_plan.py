"""Which messages a replay sends together, and where it goes on (P5)."""

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from ternmq.core.errors import BadRequest
from ternmq.pipeline.jobs import replay_plan
from ternmq.pipeline.jobs.replay import origin_pieces, row_sizes
from ternmq.pipeline.jobs.replay_plan import BLOCK_ROWS, Block, Step
from ternmq.rpc.address import unpacked_address_text


def cuts(sizes: list[int], steps: list[int], rows_max: int) -> list[int]:
    """The ends of batches when rows come in steps, with what is left over carried along."""
    ends: list[int] = []
    waiting: list[int] = []
    done = at = 0
    for number, count in enumerate(steps):
        waiting += sizes[at : at + count]
        at += count
        last = number == len(steps) - 1
        ranges = replay_plan.cut(waiting, rows_max, last=last) if waiting else []
        ends += [done + end for _, end in ranges]
        used = ranges[-1][1] if ranges else 0
        done, waiting = done + used, waiting[used:]
    return ends


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_cut_the_same_however_they_come_and_wherever_it_goes_on(seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice([10, 1_000, 400_000, 3_000_000]) for _ in range(300)]
    whole = cuts(sizes, [300], 40)

    assert cuts(sizes, [100, 1, 99, 0, 100], 40) == whole
    again = dice.choice(whole[:-1])
    rest = cuts(sizes[again:], [300 - again], 40)
    assert [again + end for end in rest] == whole[whole.index(again) + 1 :]


def test_blocks_are_joined_into_steps_and_begin_where_the_last_run_ended() -> None:
    blocks = [Block("b", 1, 256, 10), Block("a", 9, 5, 10), Block("a", 0, 7, 10)]

    made = replay_plan.steps(blocks, {"a": 100, "b": 0}, {"a": 2_400, "b": 400})

    assert made == [Step("a", 100, 2_400, 12), Step("b", BLOCK_ROWS, 400, 256)]
    large = [Block("a", n, 1, 40 * 1024 * 1024) for n in range(3)]
    assert len(replay_plan.steps(large, {}, {"a": 10_000})) == 3


def test_a_line_goes_to_the_broker_group_of_its_name_or_to_one_by_turns() -> None:
    assert replay_plan.targets(["x", "a", "y"], ["b", "a"]) == {"a": "a", "x": "b", "y": "a"}


def test_the_same_choice_has_the_same_name_and_another_has_another() -> None:
    one = replay_plan.derived_name("orders", "", "billing", "key = 'a'")

    assert one == replay_plan.derived_name("orders", "", "billing", "key = 'a'")
    assert one != replay_plan.derived_name("orders", "billing", "", "key = 'a'")


@pytest.mark.parametrize(("to_topic", "group"), [("", ""), ("a", "b")])
def test_a_replay_has_one_target(to_topic: str, group: str) -> None:
    with pytest.raises(BadRequest, match="either --to-topic"):
        replay_plan.check_choice("orders", to_topic, group)


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = replay_plan.ReplayPlan(
        name="r", topic="t", group="g", batch_rows=5, ends={"main": 7}, targets={"main": "main"}
    )

    assert replay_plan.decode("r.json", replay_plan.encode(plan)) == plan


def test_sizes_count_every_value() -> None:
    properties = pa.array([[("a", "bc")], None, []], pa.map_(pa.utf8(), pa.utf8()))
    rows = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"12345", b"", b"1"]),
            "key": pa.array([None, "k", None], pa.utf8()),
            "tag": pa.array(["t", None, None], pa.utf8()),
            "order_key": pa.array(["é", None, None], pa.utf8()),
            "properties": properties,
        }
    )

    assert row_sizes(rows).tolist() == [64 + 5 + 1 + 2 + 3, 64 + 1, 64 + 1]


def test_who_sent_a_row_from_where_is_kept() -> None:
    apps = pa.array(["before", "shop", None, "bil", "after"]).slice(1, 3)
    addresses = pa.array(["x", "1.2.3.4:80", None, "[::1]:7", "y"]).slice(1, 3)

    offsets, data, places, packed = origin_pieces(apps, addresses)

    assert bytes(data.data) == b"shopbil"
    assert memoryview(bytes(offsets.data)).cast("i").tolist() == [0, 4, 4, 7]
    ends = memoryview(bytes(places.data)).cast("i").tolist()
    assert ends == [0, 18, 18, 36]
    found = [bytes(packed.data)[a:b] for a, b in pairwise(ends)]
    assert [unpacked_address_text(each) for each in found] == ["1.2.3.4:80", "", "[::1]:7"]
