"""The messages of the RocketMQ 5 protocol that the gateway reads and writes, and its codes."""
