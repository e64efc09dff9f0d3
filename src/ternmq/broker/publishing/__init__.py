"""PUBLISH, PUBLISH_ONCE, CONFIRM: batches from producers."""
