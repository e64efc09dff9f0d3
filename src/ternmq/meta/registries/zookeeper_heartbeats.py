"""Whom a meta server hears, as ephemeral nodes: servers `/alive/MEMBER=SESSION`, and, where that
is wanted, clients `/clients/APP:ID=SESSION`.

They are gone when the meta server says so, or when its session with ZooKeeper ends because it died.
So meta servers know whom the others hear, and people see who is there. A new session makes its
nodes anew. What is written in a node stays as it was when it was made.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from kazoo.exceptions import NodeExistsError, NoNodeError

from ternmq.core.errors import Unavailable
from ternmq.meta.registries.zookeeper_tree import ZooKeeperTree, now

SERVERS = "/alive"
CLIENTS = "/clients"


class ZooKeeperHeartbeats:
    """The nodes of one session, and of the others."""

    def __init__(self, tree: ZooKeeperTree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self._session = ""
        self._mine: frozenset[str] = frozenset()

    def hold(self, wanted: Mapping[str, bytes]) -> None:
        """Exactly these from now on, with what is said of each; raises `Unavailable`."""
        members = frozenset(wanted)
        known = self._tree.client.client_id
        if known is None:
            raise Unavailable(f"the registry ({self._tree.description}) does not answer")
        session = f"{known[0]:x}"
        if session != self._session:
            self._session, self._mine = session, frozenset()
        for member in sorted(members - self._mine):
            self._tree.asked(partial(self._make, member, wanted[member]))
            self._mine |= {member}
        for member in sorted(self._mine - members):
            self._tree.asked(partial(self._drop, member))
            self._mine -= {member}

    def others(self) -> frozenset[str]:
        """Servers that any other meta server hears."""
        nodes = (node.partition("=") for node in self._tree.children(self._folder))
        return frozenset(member for member, _, session in nodes if session != self._session)

    def _make(self, member: str, content: bytes) -> None:
        with suppress(NodeExistsError):
            now(self._tree.client.create_async(self._path(member), content, ephemeral=True))

    def _drop(self, member: str) -> None:
        with suppress(NoNodeError):
            now(self._tree.client.delete_async(self._path(member)))

    def _path(self, member: str) -> str:
        return f"{self._folder}/{member}={self._session}"
