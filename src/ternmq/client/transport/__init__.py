"""Links to servers: routes, balancing, retries, circuit breakers, fan-out."""
