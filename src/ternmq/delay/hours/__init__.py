"""The hours that have messages, and what became of their rows. Pure memory."""
