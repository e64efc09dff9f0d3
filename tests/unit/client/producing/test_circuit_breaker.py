"""Q1: a failing group is avoided for a growing time; one request finds out whether it is back."""

from ternmq.client.producing.circuit_breaker import REST_MAX_S, REST_MIN_S, TRIAL_S, CircuitBreaker


def test_a_group_that_fails_is_left_alone_and_then_tried_by_one_request() -> None:
    breaker = CircuitBreaker()
    assert breaker.fit(0.0)

    breaker.failed(0.0)

    assert not breaker.fit(REST_MIN_S - 0.01)
    assert breaker.fit(REST_MIN_S)
    breaker.given(REST_MIN_S)
    assert not breaker.fit(REST_MIN_S + 0.01)  # The trial is under way.
    breaker.worked()
    assert breaker.fit(REST_MIN_S + 0.02)


def test_the_rest_doubles_with_every_failed_trial_up_to_a_bound() -> None:
    breaker, now, rests = CircuitBreaker(), 0.0, []
    for _ in range(10):
        breaker.failed(now)
        rests.append(breaker.rests_until - now)
        now = breaker.rests_until
        breaker.given(now)

    assert rests[:3] == [REST_MIN_S, 2 * REST_MIN_S, 4 * REST_MIN_S]
    assert rests[-1] == REST_MAX_S


def test_many_failures_at_once_are_one() -> None:
    """A lost connection fails every request on it."""
    breaker = CircuitBreaker()
    for _ in range(100):
        breaker.failed(1.0)

    assert breaker.rests_until == 1.0 + REST_MIN_S


def test_a_trial_that_nobody_answers_is_repeated() -> None:
    breaker = CircuitBreaker()
    breaker.failed(0.0)
    breaker.given(1.0)

    assert not breaker.fit(1.0 + TRIAL_S - 0.01)
    assert breaker.fit(1.0 + TRIAL_S)
