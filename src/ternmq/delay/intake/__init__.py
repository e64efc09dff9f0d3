"""How delayed messages arrive: from producers, and from committed transactions."""
