"""Which messages a consumer wants, as TernMQ's filters write it. Pure."""

from typing import Any

from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.enums import FilterKind

EXPRESSION_SIZE_MAX = 4_096


def read_filter(expression: Any) -> tuple[str, str]:
    """(tag, filter) of a subscription; both empty: everything."""
    text = expression.expression.strip()
    if len(text.encode()) > EXPRESSION_SIZE_MAX:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION, f"a filter has at most {EXPRESSION_SIZE_MAX} bytes"
        )
    if expression.type == FilterKind.SQL:
        return "", _sql(text)
    if text in ("", "*"):
        return "", ""
    tags = [tag.strip() for tag in text.split("||")]
    if not all(tags) or "*" in tags:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION, f"{text!r} is no list of tags: write 'one || other'"
        )
    return " || ".join(dict.fromkeys(tags)), ""


def _sql(text: str) -> str:
    if not text:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "an SQL filter is not empty")
    return text
