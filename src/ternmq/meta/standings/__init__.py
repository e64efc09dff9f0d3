"""Which server leads which broker group, and how that may change."""
