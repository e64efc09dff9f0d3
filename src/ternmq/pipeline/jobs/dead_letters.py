"""The dead-letter job: what died of what, grouped, and sending the chosen ones again (P6).

Letters of all groups are read by Spark from their hidden topics. Error texts are normalised
(numbers, ids and quoted values become `#`), so that a thousand letters with one cause are one line.
Only open letters count. Sending again goes through the broker, in ranges, at a rate: the broker
remembers which letters were handled, so that running the job twice sends nothing twice.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ternmq.core.errors import BadRequest
from ternmq.discovery.hidden_topics import dead_topic
from ternmq.pipeline.cluster import ClusterView, cluster
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.spark.session import first_line

SENT_AT_ONCE = 1_000
HELD_A_SECOND = 5
"""So often a rate is held."""
TEXT_MAX = 200
_PATTERNS = (
    (r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "#"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "#"),
    (r"(?i)\b0x[0-9a-f]+\b", "#"),
    (r"'[^']*'", "'#'"),
    (r'"[^"]*"', '"#"'),
    (r"[0-9]+(\.[0-9]+)*", "#"),
    (r"\s+", " "),
)
Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """Which letters are meant."""

    groups: tuple[str, ...] = ()
    where: str = ""
    """SQL over the columns of `letters`."""


def letters(spark: SparkSession, url: str, choice: LetterChoice) -> DataFrame | None:
    """The open letters as rows; None when there are none at all."""
    found = cluster(url)
    known = found.groups_with_dead_letters()
    for group in choice.groups:
        if group not in known:
            found.check_group(group)
    wanted = choice.groups or tuple(known)
    opened = {
        (group, broker_group): found.open_dead_letters(group, broker_group)
        for group in wanted
        for broker_group in found.broker_groups()
    }
    frames = [
        _letters_of(spark, url, TopicPlace(group, broker_group), open_)
        for (group, broker_group), open_ in opened.items()
        if open_
    ]
    if not frames:
        return None
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    if not choice.where:
        return rows
    try:
        return rows.where(choice.where)
    except (AnalysisException, ParseException) as error:
        raise BadRequest(f"--where {choice.where!r}: {first_line(error)}") from None


def normalised(text: Column) -> Column:
    """One text for one cause."""
    for pattern, replacement in _PATTERNS:
        text = f.regexp_replace(text, pattern, replacement)
    return f.substring(f.trim(text), 1, TEXT_MAX)


def grouped(rows: DataFrame) -> DataFrame:
    """One line for each cause, the most frequent first."""
    return (
        rows.groupBy("topic", "group", "error_type", "cause")
        .agg(
            f.count("*").alias("letters"),
            f.min("died_at").alias("first"),
            f.max("died_at").alias("last"),
            f.max("attempts").alias("attempts_max"),
            f.count(f.when(f.col("resent") > 0, True)).alias("resent_before"),
            f.slice(f.sort_array(f.collect_list("id")), 1, 3).alias("some_ids"),
        )
        .orderBy(f.desc("letters"), "topic", "group")
    )


def redrive(
    rows: DataFrame,
    url: str,
    *,
    rate: int,
    on_progress: Callable[[int, int], None],
    stopping: Callable[[], bool] = lambda: False,
) -> tuple[int, list[str]]:
    """Send the chosen letters again; returns how many, and what failed in words.

    Stopped early, what is left stays open.
    """
    chosen: dict[tuple[str, str], list[int]] = {}
    for row in rows.select("group", "broker_group", "letter").toLocalIterator():
        chosen.setdefault((row["group"], row["broker_group"]), []).append(row["letter"])
    total = sum(map(len, chosen.values()))
    found: ClusterView = cluster(url)
    sent, failed = 0, list[str]()
    begun = time.monotonic()
    at_once = min(SENT_AT_ONCE, max(1, rate // HELD_A_SECOND)) if rate else SENT_AT_ONCE
    for (group, broker_group), numbers in sorted(chosen.items()):
        numbers.sort()
        for at in range(0, len(numbers), at_once):
            if stopping():
                return sent, failed
            part = numbers[at : at + at_once]
            done = found.resend_dead_letters(group, ranges_of(part), broker_group)
            sent += done.handled
            failed += [f"{group}: {line}" for line in done.failed]
            on_progress(sent, total)
            ahead = begun + sent / rate - time.monotonic() if rate else 0
            if ahead > 0:
                time.sleep(ahead)
    return sent, failed


def ranges_of(numbers: Sequence[int]) -> Ranges:
    """Sorted numbers as ranges."""
    ranges: Ranges = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = (ranges[-1][0], number + 1)
        else:
            ranges.append((number, number + 1))
    return ranges


def _letters_of(spark: SparkSession, url: str, place: TopicPlace, open_: Ranges) -> DataFrame:
    """Letters of a group (the topic of `place`) that lie on one broker group."""
    group, broker_group = place

    def note(name: str) -> Any:
        return f.col("properties")[f"%{name}"]

    reader = spark.read.format("tern").options(
        url=url, subscribe=dead_topic(group), failOnDataLoss="false"
    )
    still = " or ".join(f"(sequence >= {first} and sequence < {end})" for first, end in open_)
    reason = f.coalesce(note("error_text"), note("reason"), f.lit(""))
    here = reader.load().where(f.col("broker_group") == broker_group)
    return here.where(still).select(
        "id",
        f.lit(group).alias("group"),
        "broker_group",
        note("topic").alias("topic"),
        f.col("sequence").alias("letter"),
        "key",
        "tag",
        "body",
        "properties",
        f.coalesce(note("error_type"), f.lit("")).alias("error_type"),
        reason.alias("error"),
        normalised(reason).alias("cause"),
        note("attempt").cast("int").alias("attempts"),
        f.coalesce(note("resent").cast("int"), f.lit(0)).alias("resent"),
        f.timestamp_millis(note("died_at").cast("long")).alias("died_at"),
    )
