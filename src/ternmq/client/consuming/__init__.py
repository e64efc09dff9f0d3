"""`mq.consumer`: subscriptions at broker groups, held rows, acks."""
