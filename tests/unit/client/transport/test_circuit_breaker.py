"""Q1: a failing group is avoided for a growing time; one request finds out whether it is back."""

from ternmq.client.transport.circuit_breaker import REST_MAX_S, REST_MIN_S, TRIAL_S, CircuitBreaker


def test_a_group_that_fails_is_left_alone_and_then_tried_by_one_request() -> None:
    health = CircuitBreaker()
    assert health.fit(0.0)

    health.failed(0.0)

    assert not health.fit(REST_MIN_S - 0.01)
    assert health.fit(REST_MIN_S)
    health.given(REST_MIN_S)
    assert not health.fit(REST_MIN_S + 0.01)  # The trial is under way.
    health.worked()
    assert health.fit(REST_MIN_S + 0.02)


def test_the_rest_doubles_with_every_failed_trial_up_to_a_bound() -> None:
    health, now, rests = CircuitBreaker(), 0.0, []
    for _ in range(10):
        health.failed(now)
        rests.append(health.rests_until - now)
        now = health.rests_until
        health.given(now)

    assert rests[:3] == [REST_MIN_S, 2 * REST_MIN_S, 4 * REST_MIN_S]
    assert rests[-1] == REST_MAX_S


def test_many_failures_at_once_are_one() -> None:
    """A lost connection fails every request on it."""
    health = CircuitBreaker()
    for _ in range(100):
        health.failed(1.0)

    assert health.rests_until == 1.0 + REST_MIN_S


def test_a_trial_that_nobody_answers_is_repeated() -> None:
    health = CircuitBreaker()
    health.failed(0.0)
    health.given(1.0)

    assert not health.fit(1.0 + TRIAL_S - 0.01)
    assert health.fit(1.0 + TRIAL_S)
