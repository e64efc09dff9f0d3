"""`ternmq.sync` has what the client has: every public name, the same parameters (design 11)."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import ternmq.sync
from ternmq.client.admin.admin import Admin
from ternmq.client.admin.delays import Delays
from ternmq.client.client import Client
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.reading.broadcast import Broadcast
from ternmq.client.reading.reader import Reader
from ternmq.client.transactions.detached import Detached
from ternmq.client.transactions.transaction import Transaction
from tests.tidy.source import ROOT

INSIDE = "what other parts of the client use, not applications"
WITHOUT_TWIN = {
    "Client.config": INSIDE,
    "Client.cluster": INSIDE,
    "Client.ask_before_cancel": INSIDE,
    "Client.sender": INSIDE,
    "Consumer.arrived": INSIDE,
    "Consumer.unshown": INSIDE,
    "Consumer.watch": INSIDE,
    "Consumer.withdraw": INSIDE,
    "Consumer.failed": INSIDE,
    "Consumer.give_back": INSIDE,
}
"""Names that need none, each with the reason. The list only shrinks."""

TWINS = [
    (Client, ternmq.sync.Client),
    (Admin, ternmq.sync.Admin),
    (Consumer, ternmq.sync.Consumer),
    (Reader, ternmq.sync.Reader),
    (Broadcast, ternmq.sync.Broadcast),
    (Delays, ternmq.sync.Delays),
    (Transaction, ternmq.sync.Transaction),
    (Detached, ternmq.sync.Detached),
]


def public(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        if not name.startswith("_"):
            yield name, inspect.getattr_static(kind, name)


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    """Name, kind and default of each, and which options; two functions as defaults are equal."""
    return [
        (
            each.name,
            each.kind,
            "a function" if inspect.isfunction(each.default) else each.default,
            each.annotation if each.kind is each.VAR_KEYWORD else None,
        )
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("kind", "twin"), TWINS, ids=lambda kind: kind.__module__)
def test_every_public_name_has_a_blocking_twin_with_the_same_parameters(
    kind: type, twin: type
) -> None:
    wrong = []
    for name, member in public(kind):
        full = f"{kind.__name__}.{name}"
        other = inspect.getattr_static(twin, name, None)
        if full in WITHOUT_TWIN:
            if other is not None:
                wrong.append(f"{full} has a twin: take it off the list")
        elif other is None:
            wrong.append(f"{full} has no twin in {twin.__module__}")
        elif inspect.isfunction(member) != inspect.isfunction(other):
            wrong.append(f"{full} is a method on one side only")
        elif inspect.isfunction(member) and parameters(member) != parameters(other):
            wrong.append(f"{full} has other parameters: {parameters(member)} {parameters(other)}")
        elif inspect.iscoroutinefunction(other):
            wrong.append(f"{full} must not be awaited in ternmq.sync")
    assert not wrong, "\n".join(wrong)


def test_every_class_that_applications_get_from_the_client_has_a_twin() -> None:
    named = {kind.__name__ for kind, _ in TWINS}

    assert named <= set(ternmq.sync.__all__)
    assert {"Admin", "Client", "Consumer", "Reader", "Transaction", "Detached"} <= named


def test_names_without_a_twin_are_there() -> None:
    known = {f"{kind.__name__}.{name}" for kind, _ in TWINS for name, _ in public(kind)}

    assert set(WITHOUT_TWIN) <= known


def test_generated_twins_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_sync.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert not done.returncode, done.stderr
