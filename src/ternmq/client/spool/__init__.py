"""`connect(spool=…)`: messages on the producer's own disk before they are sent."""
