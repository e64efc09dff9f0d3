"""Dead letters by cause, and sending the chosen ones again (P6)."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import BadRequest, GroupNotFound
from ternmq.pipeline.jobs.dead_letters import LetterChoice, grouped, letters, ranges_of, redrive
from ternmq.sync import connect
from tests.integration.processes import Node


def die(node: Node, count: int) -> None:
    """Every other message dies of one cause, the rest of another."""
    with connect(node.url, app="shop") as mq:
        mq.send_many("orders", [b"%d" % n for n in range(count)])
        with mq.consumer("orders", group="billing") as consumer:
            left = count
            for message in consumer:
                number = message.sequence
                message.reject(f"no account {number}" if number % 2 else f"order '{number}' is bad")
                left -= 1
                if not left:
                    break
            consumer.flush()


def test_letters_with_one_cause_are_one_line_and_are_sent_again_once(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """P6."""
    die(node, 20)
    rows = letters(spark, node.url, LetterChoice())
    assert rows is not None

    causes = {row["cause"]: row["letters"] for row in grouped(rows).collect()}

    assert causes == {"no account #": 10, "order '#' is bad": 10}
    chosen = letters(spark, node.url, LetterChoice(where="cause like 'no account%'"))
    assert chosen is not None
    assert redrive(chosen, node.url, rate=0, on_progress=lambda *_: None) == (10, [])
    again = letters(spark, node.url, LetterChoice(where="cause like 'no account%'"))
    assert again is not None and again.count() == 0, "what was sent again is not open any more"
    with connect(node.url) as mq, mq.consumer("orders", group="billing") as consumer:
        got = []
        for message in consumer:
            message.ack()
            got.append(int(message.body))
            if len(got) == 10:
                break
    assert sorted(got) == list(range(1, 20, 2))


def test_a_bad_condition_or_group_is_one_line(spark: SparkSession, node: Node) -> None:
    die(node, 2)

    with pytest.raises(BadRequest, match="--where 'colour = 3'"):
        letters(spark, node.url, LetterChoice(where="colour = 3"))
    with pytest.raises(GroupNotFound, match="no group 'biling'"):
        letters(spark, node.url, LetterChoice(groups=("biling",)))


def test_no_letters_are_no_rows(spark: SparkSession, node: Node) -> None:
    assert letters(spark, node.url, LetterChoice()) is None


def test_numbers_become_ranges() -> None:
    assert ranges_of([1, 2, 3, 7, 9, 10]) == [(1, 4), (7, 8), (9, 11)]
