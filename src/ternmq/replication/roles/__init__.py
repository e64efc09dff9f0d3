"""A member at work: joins its group, then leads or follows until it stops."""
