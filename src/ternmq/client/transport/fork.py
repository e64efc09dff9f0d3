"""The life of this process: a number that is one higher in a forked child.

Clients remember the number they were made under and compare it at every entry point (an int
compare, no system call). In a child the inherited sockets belong to the parent: they are closed
without a word, and the child gets connections, a session and a producer id of its own.
"""

import os


class _Life:
    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        self.number += 1


life = _Life()
os.register_at_fork(after_in_child=life.begin)
