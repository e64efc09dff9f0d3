"""`mq.transaction`, `mq.detached`, and the checker that answers for them."""
