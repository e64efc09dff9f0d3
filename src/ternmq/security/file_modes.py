"""Who may use a file with a secret in it: one rule for passwords, tokens, keys and node secrets.

Looks at an open file, so that what is judged is what is read. Never changes a mode.
"""

import os
import stat

NOT_OWN, NOT_GIVEN = 0o077, 0o027
"""What nobody else may do with a file of this account; with one that another account put here for
us (root, an orchestrator), which its group may read: that is how we do."""


def too_open(file: int) -> int:
    """The mode of an open file if others may use what is in it, else 0."""
    found = os.fstat(file)
    mode = stat.S_IMODE(found.st_mode)
    return mode if mode & (NOT_OWN if found.st_uid == os.geteuid() else NOT_GIVEN) else 0
