"""OpenTelemetry: spans and metrics of a client, by the API package alone. `ternmq[otel]`."""
