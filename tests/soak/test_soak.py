"""The judges of a soak can say no; a minute of the soak itself is a long test."""

from pathlib import Path

import pytest

from tests.soak.clients import HALF, ORDERED, PLAIN
from tests.soak.diaries import Diaries
from tests.soak.resources import SAMPLES_MIN, Sample, growth, look
from tests.soak.run import soak

MIB = 1 << 20


def test_memory_that_grows_all_the_time_is_not_flat() -> None:
    leaking = growth([Sample(100 * MIB + 4 * MIB * n, 20, 5) for n in range(40)])
    steady = growth([Sample(100 * MIB + 2 * MIB * (n % 7), 20, 5) for n in range(40)])

    assert leaking is not None
    assert steady is not None
    assert not leaking.flat
    assert steady.flat


@pytest.mark.parametrize("kind", ["descriptors", "threads"])
def test_descriptors_and_threads_that_pile_up_are_not_flat(kind: str) -> None:
    one = Sample(MIB, 10, 10)
    grown = growth([one._replace(**{kind: 10 + n}) for n in range(40)])

    assert grown is not None
    assert not grown.flat


def test_a_short_life_says_nothing() -> None:
    assert growth([Sample(MIB, 1, 1)] * (SAMPLES_MIN - 1)) is None
    assert look(2**22 + 1) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([f"stored {PLAIN} a.1"], "1 never came"),
        ([f"rolled {HALF} a.1", f"got {HALF} a.1"], "rolled back and came"),
        ([f"got {PLAIN} a.1", f"rejected {PLAIN} a.1"], "no dead letter"),
        ([f"got {ORDERED} k/a.2", f"got {ORDERED} k/a.1"], "k/a.1 came behind 2"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, lines: list[str], said: str) -> None:
    (tmp_path / "consume-1.log").write_text("\n".join(lines) + "\n", encoding="ascii")

    assert said in "".join(Diaries(tmp_path).check(dead=set()))


def test_what_fits_is_not(tmp_path: Path) -> None:
    lines = [f"stored {PLAIN} a.1", f"got {PLAIN} a.1", f"rejected {PLAIN} a.1"]
    (tmp_path / "consume-1.log").write_text("\n".join(lines) + "\n", encoding="ascii")

    assert Diaries(tmp_path).check(dead={"a.1"}) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_minute_of_faults_loses_nothing() -> None:
    assert soak(60, seed=11) == []
