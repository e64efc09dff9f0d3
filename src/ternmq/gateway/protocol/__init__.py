"""The RocketMQ 5 protocol: its messages, codes, names and ids, and what they are here."""
