"""Links to servers: routes, logins, retries, fan-out."""
