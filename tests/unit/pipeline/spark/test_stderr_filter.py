"""What a JVM says at every start is held back; what is about the job is not (P7)."""

import subprocess
import sys

import pytest

from ternmq.pipeline.spark.stderr_filter import quiet_start
from tests.waiting import wait_until

NOISE = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/15 17:59:39 WARN NativeCodeLoader: Unable to load native-hadoop library
"""
WORDS = """26/11/15 17:59:39 ERROR Executor: Exception in task 0.0
java.lang.OutOfMemoryError: Java heap space
Traceback (most recent call last):
"""


def say(text: str) -> None:
    code = f"import sys; sys.stderr.write({text!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_noise_is_held_back_and_errors_are_not(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_start():
        child = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.stdin.read(); sys.stderr.write({WORDS!r})"],
            stdin=subprocess.PIPE,
        )
        say(NOISE + "the first word\n")
    say("not through the pipe\n" + NOISE)
    child.communicate(b"")  # It lives longer than the block, and is still heard.

    heard = ""

    def all_heard() -> bool:
        nonlocal heard
        heard += capfd.readouterr().err
        return WORDS in heard and "the first word" in heard

    wait_until(all_heard, "what the child said")
    assert heard.count(NOISE) == 1, "only what was said through the pipe"


def test_a_start_that_fails_still_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), quiet_start():
        say("JAVA_HOME is not set\n")
        raise ValueError("no Java")
    assert "JAVA_HOME is not set" in capfd.readouterr().err


def test_whoever_asks_for_the_log_gets_all_of_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERN_SPARK_LOG", "INFO")
    with quiet_start():
        say(NOISE)
    assert capfd.readouterr().err == NOISE
