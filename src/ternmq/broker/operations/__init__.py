"""What operators ask and decide: groups, review queues, replays, lookups, figures."""
