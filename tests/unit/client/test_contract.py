"""What `import ternmq` gives, and what it does not do."""

import ast
import importlib
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

import ternmq

HEAVY = ("pyarrow", "sqlalchemy", "typer", "fastapi", "pyspark")


def test_importing_does_nothing_else_than_import() -> None:
    script = (
        "import sys, threading, ternmq, ternmq.sync\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "servers = [name for name in sys.modules if name.startswith(('ternmq.broker', "
        "'ternmq.meta', 'ternmq.storage', 'ternmq.cli.'))]\n"
        "print(heavy, servers, threading.active_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[] [] 1"


def test_the_contract_is_exported() -> None:
    names = {
        *("connect", "App", "sync", "Client", "Consumer", "Receipt", "BatchReceipt", "Message"),
        *("MessageBatch", "Outgoing", "TernError", "SendUnknown", "OverLimit", "ReadOnly"),
        *("TopicNotFound", "BadName", "TooLarge", "BufferFull", "BadFilter", "FilterConflict"),
        *("Unauthorized", "Unavailable", "Corrupt", "DiskFull", "NotMaster"),
    }

    assert names <= set(ternmq.__all__)
    assert all(hasattr(ternmq, name) for name in ternmq.__all__)


def test_every_error_of_the_tree_is_exported() -> None:
    from ternmq.core.errors import ERRORS

    assert [
        kind for kind in ERRORS.values() if getattr(ternmq, kind.__name__, None) is not kind
    ] == []


def test_the_keywords_of_connect_are_the_fields_of_the_config() -> None:
    """Type checkers need both; neither may have a name or a type that the other lacks."""
    from ternmq.client.config import DURATIONS, ClientConfig, ConnectOptions
    from ternmq.client.model.durations import Duration

    config = get_type_hints(ClientConfig)
    seconds = dict.fromkeys(DURATIONS, Duration)  # A config has them as seconds.

    assert get_type_hints(ConnectOptions) == {
        field.name: seconds.get(field.name, config[field.name]) for field in fields(ClientConfig)
    }
    assert {name: config[name] for name in DURATIONS} == dict.fromkeys(DURATIONS, float)


def test_every_public_name_is_found() -> None:
    missing = [name for name in ternmq.__all__ if getattr(ternmq, name, None) is None]
    assert not missing
    assert set(ternmq.__all__) <= set(dir(ternmq))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'konnect'"):
        _ = ternmq.konnect


def test_what_type_checkers_see_is_what_programs_get() -> None:
    tree = ast.parse(Path(ternmq.__file__).read_text(encoding="utf-8"))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        name.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom) and node.module != "ternmq"
        for name in node.names
    }
    homes = {name: module for module, names in ternmq._HOMES.items() for name in names}

    assert seen == homes
    assert set(ternmq.__all__) == {*homes, "sync"}
    for name, module in homes.items():
        assert getattr(ternmq, name) is getattr(importlib.import_module(module), name)
