"""Whether every reader can read a batch that is stored already, and if not, why.

Releases before 0.2 stored batches that `batch.check` refuses now: a column without its offsets, of
another type, with text that is not UTF-8. Such a batch stays in the log. A part that fails to read
a stored batch asks here for the reason; a batch for which there is a reason is put aside by that
part, or read as far as it can be, and everything else goes on. Never raises. For batches that are
as they should be none of this costs anything: it begins where a reader failed.
"""

from collections.abc import Callable
from typing import TypeVar

from ternmq.batch.column_rules import check_columns
from ternmq.batch.layout import DUE_MAX_MS, Attribute
from ternmq.batch.properties import PropertyValue
from ternmq.batch.view import BatchView
from ternmq.core.errors import TernError

T = TypeVar("T")


def why_unreadable(view: BatchView) -> str:
    """Which column is not as its readers need it; empty if all are."""
    try:
        check_columns(view.data, view.parts(), half=bool(view.attributes & Attribute.HALF))
    except TernError as error:
        return error.message
    except Exception as error:  # A size that does not fit its type, for one.
        return reason_of(error)
    if not 0 <= view.base_born_ms <= DUE_MAX_MS:
        return "the time at which its rows were made is no date"
    return ""


def reason_of(error: Exception) -> str:
    """An exception that a reader met, in one line."""
    return error.message if isinstance(error, TernError) else f"{type(error).__name__}: {error}"


def read_or(field: Callable[[int], T], row: int, otherwise: T) -> T:
    """A field of a row, or `otherwise` where its column cannot be read."""
    try:
        return field(row)
    except Exception:
        return otherwise


def properties_to_send(view: BatchView, row: int) -> dict[str, PropertyValue]:
    """The properties of a row as msgpack takes them: a number of more than 64 bits as its text.
    Empty where they cannot be read."""
    nothing: dict[str, PropertyValue] = {}
    found = read_or(view.properties, row, nothing)
    return {
        name: str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value
        for name, value in found.items()
    }


def order_keys_of(view: BatchView) -> list[str | None]:
    """Order keys as text. A key that is no text still orders its rows, by its bytes; without any
    keys to be found in the column its rows have none."""
    try:
        return view.order_keys()
    except Exception:
        pass  # It is known in a moment how much of them there is.
    try:
        keys = view.order_key_bytes()
    except Exception:
        return [None] * view.count
    return [None if key is None else key.decode(errors="backslashreplace") for key in keys]
