"""The gateway: official RocketMQ 5 clients, unchanged, on a TernMQ cluster."""
