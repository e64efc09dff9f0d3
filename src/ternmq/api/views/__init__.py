"""What is seen of a cluster: the watch and its snapshots, messages page by page, open letters."""
