"""Taking rows out of batches and putting rows of several together."""
