"""The `tern` command: the composition root of a node, and everything people do to one by hand."""
