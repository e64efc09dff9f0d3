"""What every command on Spark shares."""

import os
import signal
from types import SimpleNamespace

import pytest

from ternmq.cli.jobs.spark_job import job_rate, spark_job
from ternmq.cli.terminal import logs
from ternmq.core.errors import BadRequest
from ternmq.pipeline.spark import session
from ternmq.pipeline.spark.session import check_master, first_line


def test_a_rate_of_nothing_is_not_taken_for_no_limit() -> None:
    """P5: `--rate 0` by mistake must not send all at once."""
    assert (job_rate("none"), job_rate("600/m")) == (0, 10)
    with pytest.raises(BadRequest, match="leave --rate out"):
        job_rate("0/s")


@pytest.mark.parametrize("master", ["nonsense", "locally", "", "local[2"])
def test_a_word_that_is_no_master_is_one_line(master: str) -> None:
    with pytest.raises(BadRequest, match="no Spark master"):
        check_master(master)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "spark://a:1", "yarn"]
)
def test_masters_are_taken(master: str) -> None:
    check_master(master)


def test_an_error_of_java_says_what_java_said() -> None:
    """py4j's own text is only the name of the call."""
    error = RuntimeError("An error occurred while calling o41.start.")
    error.java_exception = "java.io.IOException: Mkdirs failed\n\tat org.apache"  # type: ignore[attr-defined]

    assert first_line(error) == "java.io.IOException: Mkdirs failed"


@pytest.mark.parametrize("cut_off", [True, False])
def test_ctrl_c_leaves_at_once_and_asks_java_nothing(
    monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """A call that was cut off still holds its connection: another one would wait for its end."""
    stopped: list[bool] = []
    context = SimpleNamespace(setLogLevel=lambda _: None, cancelAllJobs=lambda: None)
    spark = SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True))
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(logs, "configure", lambda **_: None)  # It is for the whole process.
    before = signal.getsignal(signal.SIGINT)

    if cut_off:
        with pytest.raises(SystemExit, match="130"), spark_job("x", None, None):
            os.kill(os.getpid(), signal.SIGINT)
    else:
        with spark_job("x", None, None):
            pass

    assert stopped == ([] if cut_off else [True])
    assert signal.getsignal(signal.SIGINT) is before
