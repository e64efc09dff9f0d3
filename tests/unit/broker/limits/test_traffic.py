"""Rates with a clock that tests turn."""

import pytest

from ternmq.broker.limits.traffic import OTHERS, SENDERS_MAX, Meter, TrafficCounters


def test_a_steady_stream_shows_its_rate_over_both_widths() -> None:
    """R25: messages/s and bytes/s."""
    meter = Meter(0.0)
    for tick in range(12_000):
        meter.add(5, 500, tick / 100)

    assert meter.rates(120.0) == pytest.approx((500, 50_000, 500, 50_000), rel=0.02)
    assert (meter.rows, meter.size) == (60_000, 6_000_000)


def test_a_young_meter_counts_from_its_birth() -> None:
    meter = Meter(1_000.0)
    for tick in range(200):
        meter.add(1, 10, 1_000 + tick / 100)

    assert meter.rates(1_002.0) == pytest.approx((100, 1_000, 100, 1_000), rel=0.02)


def test_silence_is_zero_after_the_width() -> None:
    meter = Meter(0.0)
    for tick in range(100):
        meter.add(10, 10, float(tick))

    short, _, long, _ = meter.rates(125.0)
    assert short == 0
    assert 0 < long < 10
    assert meter.rates(1_000.0) == (0, 0, 0, 0)


def test_a_burst_leaves_the_short_width_first() -> None:
    meter = Meter(0.0)
    meter.add(0, 0, 0.0)
    meter.add(600, 0, 100.0)

    assert meter.rates(101.0)[0] == pytest.approx(60, rel=0.15)
    assert meter.rates(121.0)[0] == 0
    assert meter.rates(121.0)[2] == pytest.approx(10, rel=0.5)


def test_senders_are_counted_apart_up_to_a_bound_and_go_with_their_topic() -> None:
    traffic = TrafficCounters(lambda: 0.0)
    for number in range(SENDERS_MAX + 5):
        traffic.sent_by(f"app{number}", 7, 1, 10)
    traffic.sent_by("app0", 7, 1, 10)

    assert len(traffic.senders) == SENDERS_MAX + 1
    assert traffic.senders["app0", 7] == [2, 20]
    assert traffic.senders[OTHERS] == [5, 50]

    traffic.forget_topic(7)

    assert list(traffic.senders) == [OTHERS]
