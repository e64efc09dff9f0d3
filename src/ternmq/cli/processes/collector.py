"""The garbage collector of a server: messages live in buffers, not in objects that form cycles.

So there is little to find and much to look through: young objects are looked at rarely, and what
was made at start is set aside. Without it a third of a gateway's time went into looking.
"""

import gc

THRESHOLDS = (50_000, 20, 50)


def quiet_collector() -> None:
    """Called once, when everything that stays has been made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
