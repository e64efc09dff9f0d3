"""`mq.send` and its family: gathering, encoding, sending until answered."""
