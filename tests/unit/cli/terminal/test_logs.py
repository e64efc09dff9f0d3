"""What a server logs of its peers, on a console."""

import sys
from collections.abc import Iterator

import pytest
import structlog

from ternmq.cli.terminal.logs import configure
from ternmq.core.log import get_logger

HOSTILE = "\x1b]0;mine\x07\r\u202e\x9b2J"


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_of_a_peer_drives_the_console(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    configure(as_json=as_json)
    log = get_logger()
    log.warning(HOSTILE, app=HOSTILE, several=[HOSTILE], line="a\nb")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("failed by a bug")

    written = capsys.readouterr().err
    assert written and sys.stderr is not None
    assert all(letter == "\n" or letter.isprintable() for letter in written)
    assert "a\nb" not in written, "one event, one line"
    assert "Traceback" in written
