"""A cluster in one thread: seeded, in virtual time, with faults. `world.py` is where to start."""
