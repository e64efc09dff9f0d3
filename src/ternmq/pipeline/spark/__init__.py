"""The Spark session and the JVM behind it."""
