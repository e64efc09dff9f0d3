"""Shipped fakes: a disk that forgets and tears, and (later) the broker in process."""
