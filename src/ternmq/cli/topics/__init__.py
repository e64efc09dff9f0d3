"""Commands about topics, groups and limits."""
