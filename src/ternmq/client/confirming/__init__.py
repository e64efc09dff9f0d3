"""`mq.confirm`: waiting until a group has acked what was sent."""
