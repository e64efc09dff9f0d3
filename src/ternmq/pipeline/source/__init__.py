"""`spark.read` and `spark.readStream`: topics as data frames."""
