"""What each call does."""
