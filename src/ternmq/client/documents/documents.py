"""Documents of the registry: `mq.admin.documents`.

A document has a kind, a name, a version and a body; it is replaced only by who says which version
it replaces, or does not care. One that expires is gone unless it is put again in time: by such a
document several programs agree who of them runs something (`leases.py`). Bodies are bytes; `put`
takes what JSON can hold as well. Nothing is kept here: every call asks a meta server.
"""

import secrets
from typing import Any

import msgspec

from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.durations import Duration, seconds_of
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import BadRequest, DocumentNotFound, ProtocolError, VersionMismatch
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T
from ternmq.wire.registry.documents import (
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
    Documents,
)

EXPIRES_S_MAX = 10 * 366 * 24 * 3600.0


@typed_calls
class RegistryDocuments:
    """`mq.admin.documents`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(
        self, kind: str = "", prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[Document]:
        """Up to `limit` documents without their bodies, by kind and name; `after` is the
        `KIND/NAME` of the last one of the page before."""
        found: list[Document] = []
        while len(found) < limit:
            page = await self.page(kind, prefix, after, limit - len(found))
            found += page.documents
            after = page.following
            if not after:
                break
        return found

    async def page(
        self,
        kind: str = "",
        prefix: str = "",
        after: str = "",
        limit: int = 100,
        bodies: bool = False,
    ) -> Documents:
        """One page of them, with their bodies if wanted; `following` goes on as `after`."""
        wanted = DocumentQuery(kind=kind, prefix=prefix, after=after, limit=limit, bodies=bodies)
        return await self._ask(Command.DOC_LIST, wanted, Documents)

    async def get(self, kind: str, name: str) -> Document:
        """One document; `DocumentNotFound` if there is none, or it has expired."""
        return await self._ask(Command.DOC_GET, DocumentNamed(kind=kind, name=name), Document)

    async def find(self, kind: str, name: str) -> Document | None:
        """One document; None if there is none, or it has expired."""
        try:
            return await self.get(kind, name)
        except DocumentNotFound:
            return None

    async def put(
        self,
        kind: str,
        name: str,
        body: Any,
        version: int | None = None,
        expires: Duration | None = None,
    ) -> Document:
        """Make or replace a document: bytes as they are, anything else as JSON. With `version` only
        if it has that one now (0: if there is none), else `VersionMismatch`. `expires`: it is gone
        after so long, unless it is put again."""
        data = body if isinstance(body, bytes) else json_body(body)
        seconds = 0.0 if expires is None else seconds_of("expires", expires, 0.001, EXPIRES_S_MAX)
        wanted = DocumentPut(
            kind=kind,
            name=name,
            body=data,
            version=version,
            expires_in_ms=max(1, int(seconds * 1000)) if seconds else 0,
            request=secrets.token_hex(12),
        )
        return await self._ask(Command.DOC_PUT, wanted, Document)

    async def delete(self, kind: str, name: str, version: int | None = None) -> Document:
        """Delete a document, with `version` only if it has that one now; as it was, without its
        body."""
        wanted = DocumentDelete(kind=kind, name=name, version=version)
        return await self._ask(Command.DOC_DELETE, wanted, Document)

    async def _ask(self, command: int, wanted: Record, answer: type[T]) -> T:
        try:
            return await self._cluster.ask_meta(command, wanted, answer)
        except ProtocolError as error:
            raise BadRequest(
                "this meta server does not know documents: it is of an earlier release; upgrade "
                f"the meta servers ({error.message})"
            ) from error


def json_body(value: Any) -> bytes:
    """A body that is JSON; raises `BadRequest`."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadRequest(f"this cannot be a document: {error}") from None


def json_value(document: Document) -> Any:
    """What a body that is JSON says; raises `BadRequest`."""
    try:
        return msgspec.json.decode(document.body)
    except (msgspec.DecodeError, RecursionError):
        name = f"{document.kind}/{document.name}"
        raise BadRequest(f"document {name} is not JSON; get it as bytes") from None


async def change_document(
    documents: RegistryDocuments, kind: str, name: str, change: Any, *, attempts: int = 10
) -> Document:
    """Replace a document by what `change` makes of its value, again when others were faster; raises
    `DocumentNotFound`, or `VersionMismatch` at last."""
    while True:
        held = await documents.get(kind, name)
        try:
            return await documents.put(kind, name, change(json_value(held)), version=held.version)
        except VersionMismatch:
            attempts -= 1
            if not attempts:
                raise
