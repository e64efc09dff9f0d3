"""The broker's own way to its message log: fetching stored bytes, storing messages of its own."""
