"""What every command on Spark shares."""

import pytest

from ternmq.cli.spark_job import job_rate
from ternmq.core.errors import BadRequest


def test_a_rate_of_nothing_is_not_taken_for_no_limit() -> None:
    """P5: `--rate 0` by mistake must not send all at once."""
    assert (job_rate("none"), job_rate("600/m")) == (0, 10)
    with pytest.raises(BadRequest, match="leave --rate out"):
        job_rate("0/s")
