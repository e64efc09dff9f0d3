"""The OpenAPI document is true: hostile calls made from it are never answered by a failure."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from ternmq.api.app import openapi_document
from tests.integration.console.conftest import seeded

CALLS = 4
"""Of each operation; `ENDLESS` and those that would wait are left out."""
LEFT_OUT = ("/watch", "/topics/{topic}/groups/{group}/pull")


def test_every_call_has_a_summary_and_no_page_is_loaded_from_elsewhere() -> None:
    document = openapi_document()

    assert len(document["paths"]) > 25
    for path, verbs in document["paths"].items():
        for call in verbs.values():
            assert call["summary"], path


async def test_no_call_out_of_the_document_fails() -> None:
    cases: list[Any] = []
    schema = schemathesis.openapi.from_dict(openapi_document())
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if operation.path in LEFT_OUT:
            continue
        gather(operation, cases)
    async with seeded(listens=True, large=False) as console:
        for case in cases:
            await call(console.http, case)


def gather(operation: Any, cases: list[Any]) -> None:
    """Some calls of an operation, drawn without a database and the same every time."""

    @given(case=operation.as_strategy())
    @settings(
        max_examples=CALLS,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def draw(case: Any) -> None:
        cases.append(case)

    draw()


async def call(http: httpx.AsyncClient, case: Any) -> None:
    sent = case.as_transport_kwargs(base_url=str(http.base_url).rstrip("/") + "/api/v1")
    sent.pop("cookies", None)
    try:
        request = http.build_request(
            sent["method"],
            sent["url"],
            params=sent.get("params"),
            headers=dict(sent.get("headers") or {}),
            json=sent.get("json"),
            content=sent.get("data") if isinstance(sent.get("data"), bytes | str) else None,
        )
    except (httpx.InvalidURL, UnicodeError, ValueError, TypeError):
        return  # What cannot be sent harms nobody.
    answer = await http.send(request)

    assert answer.status_code < 500 or answer.json()["code"] == "unavailable", (
        f"{sent['method']} {sent['url']}: {answer.status_code} {answer.text[:300]}"
    )
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/topics", "/groups", "/actions", "/dead", "/half"])
def test_lists_are_in_the_document(path: str) -> None:
    assert "get" in openapi_document()["paths"][path]
