"""The options of `format("tern")`: read once, checked, with the nearest known name in every error.

Names and meanings are those that users of Spark's Kafka source know, with topic and broker group
where that has topic and partition. Options are case-insensitive, as everywhere in Spark.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import DEAD_PREFIX
from ternmq.pipeline.positions import TopicPlace
from ternmq.security.sealing.master_keys import find_master_keys

DEFAULT_URL = "tern://127.0.0.1:7700"
EARLIEST, LATEST = -2, -1
TRIGGER_DELAY_S = 15 * 60.0
JOB_ID_SIZE_MAX = 200

SOURCE = (
    "url",
    "subscribe",
    "subscribePattern",
    "assign",
    "stream",
    "from",
    "includeProperties",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "keys",
)


SINK = ("url", "topic", "jobId", "keys")
SPARKS_OWN = ("checkpointLocation", "queryName", "path")
"""Options that Spark takes for itself and hands on all the same."""


@dataclass(frozen=True, slots=True)
class Where:
    """A start or an end: a word, a time for all, or per place."""

    word: str = ""
    time_ms: int | None = None
    sequences: dict[TopicPlace, int] = field(default_factory=dict)
    times_ms: dict[str, int] = field(default_factory=dict)
    """Per topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    url: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: tuple[TopicPlace, ...] = ()
    stream: str = "messages"
    starting: Where
    ending: Where
    time_missing: str = "error"
    from_replica: bool = False
    include_properties: bool = True
    rows_max: int = 0
    rows_min: int = 0
    trigger_delay_s: float = TRIGGER_DELAY_S
    bytes_max: int = 0
    partitions_min: int = 0
    partition_rows_max: int = 0
    fail_on_data_loss: bool = True
    keys: str = ""
    """Where master keys of encrypted topics are, as in TERN_KEYS; empty: nothing is decrypted."""

    def wants(self, topic: str) -> bool:
        """Is this topic one of the query's?"""
        if self.pattern:
            return not topic.startswith("%") and re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(place.topic == topic for place in self.places)


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check everything a query was given."""
    options = checked(given, SOURCE)
    stream, source = options.get("stream", "messages"), options.get("from", "master")
    if stream not in ("messages", "deliveries"):
        raise BadRequest(f"stream is 'messages' or 'deliveries', not {stream!r}")
    if source not in ("master", "replica"):
        raise BadRequest(f"from is 'master' or 'replica', not {source!r}")
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name)]
    if stream == "messages" and len(ways) != 1:
        raise BadRequest(
            "say which topics: exactly one of subscribe (a comma list), subscribePattern "
            f"(a regular expression) or assign (JSON); given: {', '.join(ways) or 'none'}"
        )
    named = (name.strip() for name in options.get("subscribe", "").split(","))
    topics = tuple(dict.fromkeys(name for name in named if name))  # Twice would be read twice.
    if stream == "deliveries" and ways:
        raise BadRequest(
            f"stream=deliveries is of all topics: leave {ways[0]} out, and choose by the column "
            "'topic'"
        )
    timed = [name for name in options if "Timestamp" in name]
    if stream == "deliveries" and timed:
        raise BadRequest(f"delivery records have no {timed[0]}: choose by the column 'at'")
    if ways == ["subscribe"] and not topics:
        raise BadRequest(f"subscribe is a comma list of topics, got {options['subscribe']!r}")
    for topic in topics:
        check_name("topic", topic.removeprefix(DEAD_PREFIX))
    starting = _where(options, "starting", "latest" if streaming else "earliest")
    ending = _where(options, "ending", "latest")
    if not streaming and starting.word == "latest":
        raise BadRequest("startingOffsets 'latest' means nothing in a batch; use 'earliest'")
    if ending.word == "earliest":
        raise BadRequest("endingOffsets is 'latest' or JSON; 'earliest' would read nothing")
    if streaming and any(name.startswith("ending") for name in options):
        raise BadRequest("a stream has no end: leave the ending… options out")
    return SourceOptions(
        url=url_of(options),
        topics=topics,
        pattern=_pattern(options.get("subscribePattern", "")),
        places=_assigned(options.get("assign", "")),
        stream=stream,
        from_replica=source == "replica",
        starting=starting,
        ending=ending,
        time_missing=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest")),
        include_properties=_truth(options, "includeProperties", True),
        rows_max=_count(options, "maxOffsetsPerTrigger"),
        rows_min=_count(options, "minOffsetsPerTrigger"),
        trigger_delay_s=_seconds(options, "maxTriggerDelay"),
        bytes_max=_count(options, "maxBytesPerTrigger"),
        partitions_min=_count(options, "minPartitions"),
        partition_rows_max=_count(options, "maxRecordsPerPartition"),
        fail_on_data_loss=_truth(options, "failOnDataLoss", True),
        keys=_keys(options),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    url: str
    topic: str
    """Empty: a column says it."""
    job_id: str
    """Empty in streams, and where a batch is written without one."""
    keys: str = ""


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check everything a write was given."""
    options = checked(given, SINK + SPARKS_OWN)
    topic, job_id = options.get("topic", ""), options.get("jobId", "")
    if topic:
        check_name("topic", topic)
    if "path" in options:
        raise BadRequest("start() and save() take no path here; say where to by the option 'topic'")
    if streaming and job_id:
        raise BadRequest("a stream knows its micro-batches by its checkpoint: leave jobId out")
    if len(job_id.encode()) > JOB_ID_SIZE_MAX:
        raise BadRequest(f"jobId has at most {JOB_ID_SIZE_MAX} bytes")
    return SinkOptions(url=url_of(options), topic=topic, job_id=job_id, keys=_keys(options))


def _keys(options: Mapping[str, str]) -> str:
    """Checked by name; the keys themselves are read where tasks run."""
    keys = options.get("keys", "")
    find_master_keys(keys, {})
    return keys


def columns_of(given: Mapping[str, str]) -> tuple[str, bool]:
    """Which rows, and whether with properties: all that the schema depends on."""
    options = {name.lower(): str(value) for name, value in given.items()}
    return (
        options.get("stream", "messages"),
        options.get("includeproperties", "true").lower() != "false",
    )


def checked(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options under their proper names; an unknown one is an error that names the nearest."""
    proper = {name.lower(): name for name in known}
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in proper:
            near = get_close_matches(name.lower(), proper, 1)
            hint = f"did you mean {proper[near[0]]!r}?" if near else f"known: {', '.join(known)}"
            raise BadRequest(f"the tern format has no option {name!r}; {hint}")
        options[proper[name.lower()]] = str(value)
    return options


def url_of(options: Mapping[str, str]) -> str:
    return options.get("url") or os.environ.get("TERN_URL") or DEFAULT_URL


def _where(options: Mapping[str, str], side: str, default: str) -> Where:
    """Kafka's precedence: one time, then times by topic, then offsets."""
    if f"{side}Timestamp" in options:
        return Where(time_ms=_whole(f"{side}Timestamp", options[f"{side}Timestamp"]))
    if f"{side}OffsetsByTimestamp" in options:
        name = f"{side}OffsetsByTimestamp"
        times = _json(name, options[name])
        return Where(times_ms={topic: _whole(name, time) for topic, time in times.items()})
    text = options.get(f"{side}Offsets", default).strip()
    if text in ("earliest", "latest"):
        return Where(word=text)
    name = f"{side}Offsets"
    found: dict[TopicPlace, int] = {}
    for topic, groups in _json(name, text).items():
        if not isinstance(groups, dict):
            raise BadRequest(f'{name} is JSON such as {{"orders": {{"main": 120}}}}, got {text!r}')
        for group, sequence in groups.items():
            found[TopicPlace(topic, group)] = _whole(name, sequence)
    return Where(sequences=found)


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadRequest(f"{name} is not JSON: {error}; got {text!r}") from error
    if not isinstance(found, dict):
        raise BadRequest(f"{name} must be a JSON object, got {text!r}")
    return found


def _assigned(text: str) -> tuple[TopicPlace, ...]:
    if not text:
        return ()
    found = _json("assign", text)
    fine = all(
        isinstance(groups, list) and groups and all(isinstance(group, str) for group in groups)
        for groups in found.values()
    )
    if not found or not fine:
        raise BadRequest(f'assign is JSON such as {{"orders": ["main"]}}, got {text!r}')
    places = (TopicPlace(topic, group) for topic, groups in found.items() for group in groups)
    return tuple(dict.fromkeys(places))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadRequest(f"subscribePattern {text!r} is no regular expression: {error}") from error
    return text


def _whole(name: str, value: Any) -> int:
    """What Spark hands over as text, or JSON had as a number or text."""
    try:
        found = int(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= 2**63:
        raise BadRequest(f"{name} takes whole numbers, got {value!r}")
    return found


def _count(options: Mapping[str, str], name: str) -> int:
    if name not in options:
        return 0
    value = _whole(name, options[name])
    if value <= 0:
        raise BadRequest(f"{name} must be positive, got {value}")
    return value


def _truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadRequest(f"{name} is 'true' or 'false', not {options[name]!r}")
    return text == "true"


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = options.get(name, choices[0])
    if text not in choices:
        raise BadRequest(f"{name} is one of {', '.join(choices)}, not {text!r}")
    return text


def _seconds(options: Mapping[str, str], name: str) -> float:
    text = options.get(name)
    if text is None:
        return TRIGGER_DELAY_S
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", text)
    if match is None:
        raise BadRequest(f"{name} is a time such as 500ms, 30s, 15m or 1h, got {text!r}")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[match[2]]
