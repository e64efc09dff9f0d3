"""The archive: stored messages and delivery records as Parquet."""
