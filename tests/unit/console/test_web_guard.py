"""Whose requests pass: programs and our own pages, never what another site sends."""

import pytest
from starlette.datastructures import Headers

from ternmq.console.web_guard import why_refused


@pytest.mark.parametrize(
    ("method", "headers", "passes"),
    [
        ("GET", {"host": "127.0.0.1:7780"}, True),
        ("GET", {"host": "localhost:7780"}, True),
        ("GET", {"host": "[::1]:7780"}, True),
        ("GET", {"host": "evil.example"}, False),
        ("GET", {"host": "localhost.evil.example:7780"}, False),
        ("GET", {}, False),
        ("POST", {"host": "127.0.0.1:7780"}, True),
        ("POST", {"host": "127.0.0.1:7780", "origin": "http://127.0.0.1:7780"}, True),
        ("POST", {"host": "127.0.0.1:7780", "origin": "http://127.0.0.1:9999"}, False),
        ("POST", {"host": "127.0.0.1:7780", "origin": "null"}, False),
        ("POST", {"host": "127.0.0.1:7780", "sec-fetch-site": "same-origin"}, True),
        ("POST", {"host": "127.0.0.1:7780", "sec-fetch-site": "same-site"}, False),
        ("DELETE", {"host": "127.0.0.1:7780", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_a_request_passes_by_its_host_and_its_origin(
    method: str, headers: dict[str, str], passes: bool
) -> None:
    assert (why_refused(method, Headers(headers)) == "") is passes
