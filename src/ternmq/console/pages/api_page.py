"""The HTTP API as a page: every call with its parameters, made from the same OpenAPI document."""

from typing import Any

from ternmq.api.app import openapi_document
from ternmq.console.copy_as import CopyAs
from ternmq.console.page import AskedUrl, Console, ShownPage

VERBS = ("get", "post", "put", "patch", "delete")


def calls_of(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Calls by tag, in the order of the document."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path, verbs in document["paths"].items():
        for verb in VERBS:
            if verb not in verbs:
                continue
            call = verbs[verb]
            names = [
                f"{each['name']}{'' if each.get('required') else '?'}"
                for each in call.get("parameters", [])
                if each["in"] == "query"
            ]
            entry = {
                "verb": verb.upper(),
                "path": path,
                "summary": call.get("summary", ""),
                "about": call.get("description", ""),
                "query": names,
            }
            found.setdefault(call.get("tags", ["other"])[0], []).append(entry)
    return found


async def api_page(console: Console, asked: AskedUrl) -> ShownPage:
    facts = {"calls": calls_of(openapi_document()), "origin": console.origin}
    copy = CopyAs(curl=f"curl -s {console.origin}/api/v1/openapi.json")
    return ShownPage(template="api.html", title="HTTP API", section="api", facts=facts, copy=copy)
