"""Sending and receiving: connect, the producer, the consumer, the reader, the app, admin calls.

An application imports `ternmq`, which re-exports the public names from here. Nothing here imports
server code, pyarrow or a database driver.
"""
