"""Numbers with units, times that are relative and exact."""

from ternmq.console.formats import ago, duration, moment, number, plural, rate, share, short, size


def test_numbers_have_their_units() -> None:
    assert number(1_234_567) == "1,234,567"
    assert number(2.5) == "2.5"
    assert [short(x) for x in (999, 12_345, 1_500_000)] == ["999", "12.3 k", "1.5 M"]
    assert rate(0.25) == "0.2/s"
    assert [size(x) for x in (10, 2_048, 5 * 2**30)] == ["10 B", "2.0 KiB", "5.0 GiB"]
    assert [share(x, 1_000) for x in (0, 0.5, 55, 500)] == ["0.0 %", "< 0.1 %", "5.5 %", "50 %"]
    assert [plural(x, "message") for x in (1, 2)] == ["1 message", "2 messages"]


def test_times_are_told_in_their_two_largest_units() -> None:
    assert [duration(x) for x in (12, 1_000, 200_000, 3_600_000, 90_061_000)] == [
        "12 ms",
        "1 s",
        "3 min 20 s",
        "1 h",
        "1 d 1 h",
    ]
    assert (ago(0, 5_000), ago(65_000, 5_000), ago(10, 5)) == ("5 s ago", "in 1 min", "now")
    assert moment(0) == "1970-01-01 00:00:00.000 UTC"
