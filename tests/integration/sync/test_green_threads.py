"""Programs whose threads were replaced by greenlets: refused with what to do, or working."""

import subprocess
import sys

import pytest

from tests.integration.processes import Node, clean_environment

PROGRAM = """
import warnings
warnings.simplefilter("ignore")
{patch}
from ternmq import BadConfig, sync
try:
    with sync.connect("{url}", app="green") as mq:
        mq.send("green", b"1")
        print("sent")
except BadConfig as error:
    print("refused:", error)
"""


def said(node: Node, patch: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(patch=patch, url=node.url)],
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("patch", "advice"),
    [
        ("import gevent.monkey; gevent.monkey.patch_all()", "patch_all(thread=False)"),
        ("import eventlet; eventlet.monkey_patch()", "monkey_patch(thread=False)"),
    ],
    ids=["gevent", "eventlet"],
)
def test_patched_threads_are_refused_instead_of_hanging(
    shared_node: Node, patch: str, advice: str
) -> None:
    answer = said(shared_node, patch)

    assert answer.startswith("refused:")
    assert advice in answer


def test_with_threads_left_alone_gevent_is_fine(shared_node: Node) -> None:
    assert (
        said(shared_node, "import gevent.monkey; gevent.monkey.patch_all(thread=False)") == "sent"
    )
