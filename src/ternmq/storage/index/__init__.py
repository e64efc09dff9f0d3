"""Where the messages with an id or a key are."""
