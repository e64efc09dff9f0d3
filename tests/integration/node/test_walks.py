"""ARCHITECTURE's walks are walked: every file of a numbered step is crossed, in the order written.

What stands between the lists is about other cases (a retry, a refusal, a cut) and is not looked at.
"""

import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks.walk.journeys import JOURNEYS, walk
from benchmarks.walk.trace import Trace, in_order

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
REASONS = ROOT / "docs/decisions/0015-rooms-and-words.md"
RUNS = 2
SPINE_MAX = 9
FILES_MAX = 41
"""What a warm publish may cross: these only shrink. Decision 0015 says why each of them stays."""

WALKS = {
    "One publish": "publish",
    "One pull": "pull",
    "One ack": "ack",
    "A retry that dies": "dead",
    "One delayed message, accepted": "delay",
    "One delayed message, fired": "fire",
    "One replicated batch": "replicate",
}
STEPS = re.compile(r"^### (.+)\n+((?:(?:\d+\. |   ).+\n)+)", re.MULTILINE)
FILE = re.compile(r"`([\w/]+/\w+\.py)`")


def written() -> dict[str, list[str]]:
    """The files of each numbered list, in order, by heading."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    return {heading: FILE.findall(steps) for heading, steps in STEPS.findall(text)}


@cache
def walked() -> dict[str, Trace]:
    return asyncio.run(walk(list(JOURNEYS), runs=RUNS))


def test_every_journey_is_a_walk_of_the_page() -> None:
    assert set(written()) == set(WALKS)
    assert sorted(WALKS.values()) == sorted(JOURNEYS)


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_crosses_the_files_that_the_page_names(heading: str) -> None:
    crossed = [call.file for call in walked()[WALKS[heading]].calls]

    assert not in_order(written()[heading], crossed)


def test_a_warm_publish_stays_within_its_budget() -> None:
    publish = walked()["publish"]

    assert len(publish.files) <= FILES_MAX
    assert 5 <= len(publish.spine) <= SPINE_MAX, publish.spine


def test_every_file_of_a_publish_has_its_reason() -> None:
    _, table = REASONS.read_text(encoding="utf-8").split("## The files of a publish")

    assert set(walked()["publish"].files) == set(FILE.findall(table))
