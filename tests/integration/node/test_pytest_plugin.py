"""The fixtures that users' tests have, in a run of pytest of its own."""

import subprocess
import sys
from pathlib import Path

TESTS = """
def test_a_message_goes_through(tern_mq, tern_topic):
    tern_mq.send(tern_topic, b"o-1")
    with tern_mq.consumer(tern_topic, group="g") as consumer:
        for message in consumer:
            assert message.body == b"o-1"
            message.ack()
            break


def test_another_test_has_another_topic(tern_mq, tern_topic, tern_url):
    assert tern_url.startswith("tern://127.0.0.1:")
    tern_mq.send(tern_topic, b"x")
    assert [message.body for message in tern_mq.read(tern_topic)] == [b"x"]


def test_a_retry_is_due_when_the_clock_is_turned(tern, tern_node, tern_clock):
    from ternmq.testing import settled

    tern.send("orders", b"x")
    with tern.consumer("orders", group="g") as consumer:
        next(iter(consumer)).retry(after=60)
        assert settled(tern, "orders", "g").waiting_retry == 1
        tern_clock.turn(61)
        message = next(iter(consumer))
        assert message.attempt == 2
        message.ack()
        assert settled(tern, "orders", "g").acked == 1


def test_each_such_test_has_a_node_of_its_own(tern):
    assert tern.admin.topics() == []
"""


def test_an_application_is_tested_against_a_real_node(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    # Named here, so not by its entry point too: that is there only after an installation.
    plugin = ["-p", "no:cacheprovider", "-p", "no:ternmq", "-p", "ternmq.testing.pytest_plugin"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
