"""Commands about messages: send, consume, find, dead, delay, half, ledger."""
