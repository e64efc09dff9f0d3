"""Every file in examples/ runs against a real node, shows what it promises, and cleans up (D8)."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import Node, clean_environment, tern

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
README_URL = "tern://127.0.0.1:7700"

# What each example must print, in this order; other lines may stand in between.
SHOWN = {
    "19_typed_handlers.py": [
        "tried   reject: DecodeError: a body of 27 bytes is no Order: .*",
        "printed order 4: 9.00 EUR",
        "ledger  total 4 = acked 2 [+] dead 2",
    ],
    "18_opentelemetry.py": [
        "billed  order 1",
        "spans   process example.traced, receive example.traced, send example.traced",
        "linked  True",
    ],
    "01_send_and_consume.py": [
        "stored  sequence 0 in broker group main",
        "got     'order 0 is paid' key=o-0 amount=0",
        "got     'order 2 is paid' key=o-2 amount=20",
        "ledger  total 3 = ready 0 [+] acked 3",
    ],
    "02_sync.py": [
        "stored  8 messages, last sequence 7",
        r"got     orders \[0, 1, 2, 3, 4, 5, 6, 7\]",
    ],
    "03_subscriber_app.py": [
        "billed  message 3 at attempt 2",
        r"billed  \[0, 1, 2, 3, 4, 5, 6, 7, 8, 9\]",
        "mailed  10",
        "ledger  billing: total 10 = acked 10",
        "ledger  mails: total 10 = acked 10",
    ],
    "04_batches.py": [
        r"stored  100000 messages, failures: \[\]",
        "row 7   is 7 after row 0",
        r"last    keys \['a', ''\]",
        r"arrow   columns \['sequence', 'stored_at', 'body', 'key', 'tag'\]",
        "got     100002 messages, 1400000 bytes",
    ],
    "05_retry_and_reject.py": [
        "ack     good at attempt 1",
        "retry   flaky after attempt 1",
        "retry   flaky after attempt 2",
        "ack     flaky at attempt 3",
        "ledger  total 3 = acked 2 [+] dead 1",
        "dead    b'bad' of 'example.retry': 'not an order'",
    ],
    "06_read_without_a_group.py": [
        r"all     \[b'one', b'two', b'three', b'four'\]",
        r"1 to 3  \[b'two', b'three'\]",
        r"later   \[b'four'\]",
        r"follow  b'five' at sequence \d+",
    ],
    "09_delay.py": [
        r"waiting \['o-1', 'o-2', 'o-3', 'o-4'\]",
        "paid    o-2: cancelled",
        "paid    o-2: cancelled",
        "later   o-3: rescheduled",
        "now     o-4: fired",
        "close   o-4",
        "close   o-1",
        "close   o-3",
        "too late o-1: already_dispatched",
        "ledger  accepted 4 = pending 0 [+] dispatched 3 [+] cancelled 1",
    ],
    "10_transaction.py": [
        "o-1: committed, sequence 0",
        "o-2: rolled_back",
        "o-3: unknown; the broker asks the checker",
        "o-3: committed by the checker",
    ],
    "17_encryption.py": [
        "with the key   o-1: an order of Ada",
        "with the key   o-2: an order of Bob",
        "without it     o-1: key_not_found",
        r"erased         ada in \['example.encryption'\]",
        "afterwards     o-1: erased",
        "afterwards     o-2: an order of Bob",
    ],
    "07_many_consumers.py": [
        "dora left after 50",
        "handled 2000 different messages, shared: True",
        "ledger  total 2000 = ready 0 [+] acked 2000",
    ],
    "08_handlers.py": [
        "insert  6 rows at once",
        "by hand 5 acked, 1 rejected",
        r"bank    attempts \[1, 1, 1, 1, 1, 2\]",
    ],
    "11_fastapi_outbox.py": [
        "paid    order 1: 200",
        "paid    order 2: 422",
        "paid    order 3: 200",
        r"\[b'order 1', b'order 3'\]",
    ],
    "12_flask_outbox.py": [
        "paid    order 2: 422",
        "sent    2",
        'stored  o-1 {"order":1,"amount":10}',
        'stored  o-3 {"order":3,"amount":30}',
    ],
    "13_django_outbox.py": [
        "failed  nothing to pay",
        r"orders  \[10, 30\]",
        r"stored  \[10, 30\]",
    ],
    "14_inbox.py": [
        "billed  o-1 at attempt 1",
        r"bills   \['o-1', 'o-2', 'o-3'\]",
    ],
    "15_spark.py": [
        "batch   100 messages with id, topic, broker_group, sequence, body …",
        "sql     c-1 spent 7500 cents",
        "sql     c-0 spent 7350 cents",
        "lake    100 rows, 100 ids",
        "acked   40 by billing",
    ],
    "16_cluster.py": [
        r"ready   tern://127.0.0.1:\d+",
        "stored  group-1: 500, group-2: 500",
        "got     1000 of 1000 messages",
        "ledger  group-1: total 500 = acked 500",
        "ledger  group-2: total 500 = acked 500",
    ],
}


def test_every_example_is_in_the_table() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_shows_what_it_promises_and_ends_by_itself(name: str, shared_node: Node) -> None:
    done = run_program((EXAMPLES / name).read_text(encoding="utf-8"), shared_node)

    pattern = "(.*\n)*".join(f"{line}\n" for line in SHOWN[name])
    assert re.search(pattern, done.stdout), done.stdout
    left = [topic["name"] for topic in tern("topic", "list", "--json", url=shared_node.url).json()]
    assert not [topic for topic in left if topic.startswith("example.")]


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_example_fits_on_a_screen(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 60


def test_the_programs_in_the_readme_run(node: Node) -> None:
    """The first two end by themselves; the third is a service and stops itself here."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    plain, blocking, service = [one.replace(README_URL, node.url) for one in programs]

    assert "o-1 b'o-1 is paid' {'amount': 12}" in run_program(plain, node).stdout
    assert "{'order': 1}" in run_program(blocking, node).stdout
    stopping = service.replace(
        'print("reserving for", message.key)',
        'print("reserving for", message.key); import os; os.kill(os.getpid(), 15)',
    )
    assert "reserving for o-1" in run_program(stopping, node).stdout
    lines = tern("ledger", "order.paid", "stock", "--json", url=node.url).json()
    assert [line["acked"] for line in lines] == [1]


def test_the_tour_of_the_readme_shows_what_it_says(node: Node) -> None:
    """Every `$ tern …` of the page, in order; how long it took may differ."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\$ tern (.+)\n((?:(?!\$|```|\n).+\n)+)", text, re.MULTILINE)

    assert len(steps) >= 3
    for command, shown in steps:
        ran = tern(*shlex.split(command), url=node.url)
        assert without_times(ran.out + ran.err) == without_times(shown), command


def without_times(text: str) -> list[str]:
    return [re.sub(r"\d+\.\d\d s$", "… s", line).rstrip() for line in text.splitlines()]


def run_program(code: str, node: Node) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=110,  # Spark needs its time on a busy machine.
        env=clean_environment({"TERN_URL": node.url}),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
