"""Who is there, and what they may do; and that nobody listens."""
