"""What a broker does by itself: timers, checkpoints, retention."""
