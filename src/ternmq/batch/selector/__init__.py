"""SQL92 and tag filters over the columns of a batch."""
