"""`mq.read`, `mq.find`, `mq.broadcast`: messages without a lease."""
