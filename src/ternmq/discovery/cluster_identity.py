"""Which cluster this process is of: the one whose registry it met first, and no other.

Every meta server says in its Welcome whose registry it has. Meta servers of one url share one
registry; one that has a registry of its own knows other topics, other groups and other masters
under the same names, so it is never asked, and nothing is told to it.

A registry may be lost for good and begin anew, under the same meta servers. So another one is
believed when every meta server of the url answers, and all of them have it: then nobody is left who
could have the former one.
"""

from collections.abc import Sequence

from ternmq.core.errors import Unavailable
from ternmq.core.log import get_logger

log = get_logger()


class ClusterIdentity:
    """The cluster that one process belongs to. Set on its loop; may be read from any thread."""

    def __init__(self) -> None:
        self.id = ""
        """Empty: none was met yet, or only meta servers of a release that does not say it."""

    def is_foreign(self, id_heard: str) -> bool:
        return bool(id_heard and self.id) and id_heard != self.id

    def take(self, id_heard: str) -> None:
        """This is the one."""
        if self.is_foreign(id_heard):
            log.error(
                "every meta server has another registry than before: going on with that one",
                before=self.id,
                now=id_heard,
            )
        self.id = id_heard or self.id

    def refusal(self, address: str, id_heard: str) -> Unavailable:
        return Unavailable(
            f"the meta server {address} is not asked: it has a registry of its own (cluster "
            f"{id_heard}), this is cluster {self.id}. Meta servers of one url share one registry: "
            "`registry = ...` is the same for all of them (docs/cluster.md), or take it out of the "
            "url"
        )


def all_have(id_heard: str, others: Sequence[str | None]) -> bool:
    """Every other meta server answered (None: it did not), with the same registry."""
    return all(other == id_heard for other in others)
