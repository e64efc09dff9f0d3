"""The arithmetic of `tern bench`."""

from ternmq.cli.servers.bench import Load, Measured, Mode, percentile, summarise

LOAD = Load(topic="t", size=1024, count=500_000, batch=1, producers=1, rate=1)


def test_percentiles_are_values_that_were_measured() -> None:
    waits = [float(number) for number in range(1, 101)]

    assert percentile(waits, 0.5) == 51.0
    assert percentile(waits, 0.999) == 100.0
    assert percentile([], 0.5) == 0.0


def test_cpu_is_told_per_million_messages() -> None:
    measured = Measured(count=500_000, seconds=0.5, client_cpu_s=0.1, broker_cpu_s=0.2)

    result = summarise(Mode.PUBLISH, LOAD, measured)

    assert result.rate == 1_000_000
    assert result.client_cpu_per_million == 0.2
    assert result.broker_cpu_per_million == 0.4
    assert result.mib_per_s == 976.56
