"""From what RocketMQ clients say to what TernMQ does, and back; no waiting, no sockets."""
