"""Jobs over archive and queue: trace, replay, dead letters."""
