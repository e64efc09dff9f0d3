"""What `import ternmq` gives, and what it does not do."""

import subprocess
import sys
from dataclasses import fields
from typing import get_type_hints

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
