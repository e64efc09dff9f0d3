"""The Grafana dashboards: every metric and label that they name is one of ours."""

import json
import re
from typing import Any

import pytest

from scripts.make_dashboards import DASHBOARDS, FOLDER, text_of
from ternmq.metrics.table import BY_NAME

NAME = re.compile(r"\btern_\w+")
PARTS = ("_bucket", "_sum", "_count")
SELECTOR = re.compile(r"(tern_\w+)\{([^}]*)\}")
FILES = sorted(FOLDER.glob("*.json"))


def metric_of(name: str) -> str | None:
    """The metric of our table that a name in a query is of."""
    if name in BY_NAME:
        return name if BY_NAME[name].kind != "histogram" else None
    for part in PARTS:
        whole = name.removesuffix(part)
        if whole != name and whole in BY_NAME and BY_NAME[whole].kind == "histogram":
            return whole
    return None


def queries(dashboard: dict[str, Any]) -> list[str]:
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    lists = [each["query"]["query"] for each in dashboard["templating"]["list"][1:]]
    return [*panels, *lists]


def test_the_files_are_what_the_script_writes() -> None:
    assert [path.stem for path in FILES] == sorted(each.name for each in DASHBOARDS)
    for each in DASHBOARDS:
        text = (FOLDER / f"{each.name}.json").read_text(encoding="utf-8")
        assert text == text_of(each), f"{each.name}: run python scripts/make_dashboards.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_metric_that_a_dashboard_names_is_in_the_table(path: Any) -> None:
    for query in queries(json.loads(path.read_text(encoding="utf-8"))):
        names = NAME.findall(query)
        assert names, query
        for name in names:
            assert metric_of(name), f"{name} is no series of ours: {query}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_label_that_is_chosen_by_is_one_of_its_metric(path: Any) -> None:
    for query in queries(json.loads(path.read_text(encoding="utf-8"))):
        for name, chosen in SELECTOR.findall(query):
            metric = metric_of(name)
            assert metric is not None
            labels = re.findall(r"(\w+)=~?\"", chosen)
            assert set(labels) <= set(BY_NAME[metric].labels), query
        for metric, label in re.findall(r"label_values\((\w+), (\w+)\)", query):
            assert label in BY_NAME[metric].labels, query


def test_no_counter_is_shown_without_a_rate() -> None:
    """A line that only grows says nothing."""
    for path in FILES:
        for query in queries(json.loads(path.read_text(encoding="utf-8"))):
            for name in NAME.findall(query):
                metric = metric_of(name)
                if metric is not None and BY_NAME[metric].kind == "counter":
                    assert re.search(r"\b(rate|increase)\(", query), query
