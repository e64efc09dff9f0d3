"""Documents in a ZooKeeper registry: a node each, replaced only at a known version.

    /documents             the last version, how many there are, bytes of all bodies
    /documents/KIND=NAME   one document

Every change replaces `/documents` if nobody else did meanwhile, so changes happen one after the
other, whichever meta server asks. They are no news, and touch nothing else of the registry.
"""

from typing import Any

import msgspec

from ternmq.core.errors import Corrupt
from ternmq.meta.registries.registry import check_known, check_room, full
from ternmq.meta.registries.zookeeper_tree import CHUNK, ZooKeeperTree, now
from ternmq.wire.registry.documents import (
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)

FOLDER = "/documents"
SWEEP_EVERY = 100
"""Changes between two clean-ups of what expired."""


class _Folder(msgspec.Struct, frozen=True):
    version: int = 0
    count: int = 0
    size: int = 0


class _Node(msgspec.Struct, frozen=True):
    version: int
    body: bytes
    changed_at_ms: int
    expires_at_ms: int = 0
    request: str = ""

    def live(self, now_ms: int) -> bool:
        return not self.expires_at_ms or self.expires_at_ms > now_ms


class ZooKeeperDocuments:
    """The documents below one tree."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self._tree = tree

    def find(self, wanted: DocumentNamed, now_ms: int) -> Document | None:
        [node] = self._nodes([f"{wanted.kind}={wanted.name}"])
        if node is None or not node.live(now_ms):
            return None
        return _document(wanted.kind, wanted.name, node)

    def listed(self, wanted: DocumentQuery, now_ms: int) -> list[Document]:
        """One more than wanted, if there is one; by kind and name."""
        after = tuple(wanted.after.split("/", 1)) if wanted.after else ("", "")
        keys = sorted(tuple(each.split("=", 1)) for each in self._tree.children(FOLDER))
        chosen = [
            (kind, name)
            for kind, name in keys
            if (kind, name) > after and wanted.kind in ("", kind) and name.startswith(wanted.prefix)
        ]
        found: list[Document] = []
        while chosen and len(found) <= wanted.limit:
            some, chosen = chosen[:CHUNK], chosen[CHUNK:]
            nodes = self._nodes([f"{kind}={name}" for kind, name in some])
            for (kind, name), node in zip(some, nodes, strict=True):
                if node is not None and node.live(now_ms):
                    found.append(_document(kind, name, node, body=wanted.bodies))
        return found[: wanted.limit + 1]

    def put(self, wanted: DocumentPut, now_ms: int) -> Document:
        """Raises `VersionMismatch`, `OverLimit`."""
        return self._tree.repeated(lambda: self._put(wanted, now_ms))

    def _put(self, wanted: DocumentPut, now_ms: int) -> Document:
        folder, at = self._folder()
        key = f"{wanted.kind}={wanted.name}"
        [held] = self._nodes([key])
        live = held if held is not None and held.live(now_ms) else None
        if live is not None and wanted.request and live.request == wanted.request:
            return _document(wanted.kind, wanted.name, live)  # Once more, after a lost answer.
        check_known(wanted, 0 if live is None else live.version)
        change = self._tree.client.transaction()
        version = folder.version + 1
        gone: dict[str, int] = {}
        if version % SWEEP_EVERY == 0 or (held is None and full(folder.count)):
            gone = self._expired(now_ms, but=key)
        for other in gone:
            change.delete(f"{FOLDER}/{other}")
        count, size = folder.count - len(gone), folder.size - sum(gone.values())
        check_room(wanted, count, size, None if held is None else len(held.body))
        node = _Node(
            version=version,
            body=wanted.body,
            changed_at_ms=now_ms,
            expires_at_ms=now_ms + wanted.expires_in_ms if wanted.expires_in_ms else 0,
            request=wanted.request,
        )
        if held is None:
            change.create(f"{FOLDER}/{key}", msgspec.json.encode(node))
            count, size = count + 1, size + len(wanted.body)
        else:
            change.set_data(f"{FOLDER}/{key}", msgspec.json.encode(node))
            size += len(wanted.body) - len(held.body)
        self._commit(change, _Folder(version=version, count=count, size=size), at)
        return _document(wanted.kind, wanted.name, node)

    def delete(self, wanted: DocumentDelete, now_ms: int) -> Document | None:
        """The document as it was; None if there is none. Raises `VersionMismatch`."""
        return self._tree.repeated(lambda: self._delete(wanted, now_ms))

    def _delete(self, wanted: DocumentDelete, now_ms: int) -> Document | None:
        folder, at = self._folder()
        key = f"{wanted.kind}={wanted.name}"
        [held] = self._nodes([key])
        if held is None or not held.live(now_ms):
            return None
        check_known(wanted, held.version)
        change = self._tree.client.transaction()
        change.delete(f"{FOLDER}/{key}")
        after = _Folder(
            version=folder.version + 1, count=folder.count - 1, size=folder.size - len(held.body)
        )
        self._commit(change, after, at)
        return _document(wanted.kind, wanted.name, held)

    def _expired(self, now_ms: int, *, but: str) -> dict[str, int]:
        """Some that are gone for readers already, with the size of each."""
        gone: dict[str, int] = {}
        keys = [key for key in self._tree.children(FOLDER) if key != but]
        for first in range(0, len(keys), CHUNK):
            some = keys[first : first + CHUNK]
            for key, node in zip(some, self._nodes(some), strict=True):
                if node is not None and not node.live(now_ms) and len(gone) < CHUNK:
                    gone[key] = len(node.body)
        return gone

    def _commit(self, change: Any, after: _Folder, at: int) -> None:
        change.set_data(FOLDER, msgspec.json.encode(after), version=at)
        self._tree.finish(change)

    def _folder(self) -> tuple[_Folder, int]:
        data, stat = self._tree.asked(lambda: now(self._tree.client.get_async(FOLDER)))
        return msgspec.json.decode(data, type=_Folder) if data else _Folder(), stat.version

    def _nodes(self, keys: list[str]) -> list[_Node | None]:
        found = self._tree.read([f"{FOLDER}/{key}" for key in keys])
        return [None if data is None else _decoded(data) for data in found]


def _decoded(data: bytes) -> _Node:
    try:
        return msgspec.json.decode(data, type=_Node)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a document in the registry: {error}") from error


def _document(kind: str, name: str, node: _Node, *, body: bool = True) -> Document:
    return Document(
        kind=kind,
        name=name,
        version=node.version,
        body=node.body if body else b"",
        changed_at_ms=node.changed_at_ms,
        expires_at_ms=node.expires_at_ms,
        size=len(node.body),
    )
