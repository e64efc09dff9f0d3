"""The gateway with official RocketMQ clients, each a process of its own."""
