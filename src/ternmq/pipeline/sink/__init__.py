"""`write` and `writeStream`: rows of a data frame as messages, exactly once."""
