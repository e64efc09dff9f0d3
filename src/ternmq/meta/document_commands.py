"""Documents of the registry as clients ask for them: versioned, bounded, and gone when they expire.

What is in a document is nobody's business here: programs (jobs, alarms, settings of a console) keep
their state in them, and decide by a document that expires who of several runs something. Nothing is
kept in memory; every question goes to the registry, so what was answered once is there for
everybody. When one has expired is decided by the clock of the meta server that is asked.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from ternmq.core.errors import BadName, BadRequest, DocumentNotFound, TooLarge
from ternmq.meta.directory import MetaDirectory
from ternmq.wire.record import Record
from ternmq.wire.registry.documents import (
    DOCUMENT_SIZE_MAX,
    DOCUMENTS_LISTED_MAX,
    DOCUMENTS_LISTED_SIZE_MAX,
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
    Documents,
)

EXPIRES_MS_MAX = 10 * 366 * 24 * 3600 * 1000
WITH_BODIES_MAX = 100
"""With their bodies in one answer; also bounded by their size."""
KIND = re.compile(r"[A-Za-z0-9._-]{1,40}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9._%@:+~=-]{1,200}", re.ASCII)
REQUEST = re.compile(r"[0-9a-f]{0,64}", re.ASCII)


class DocumentCommands:
    """DOC_LIST, DOC_GET, DOC_PUT, DOC_DELETE."""

    def __init__(self, directory: MetaDirectory) -> None:
        self._directory = directory

    async def list(self, wanted: DocumentQuery) -> Record:
        """Pages are cut by number and by size."""
        if wanted.kind:
            _check_kind(wanted.kind)
        if wanted.prefix:
            check_document_name(wanted.prefix)
        if wanted.after:
            kind, _, name = wanted.after.partition("/")
            _check_kind(kind)
            check_document_name(name)
        most = WITH_BODIES_MAX if wanted.bodies else DOCUMENTS_LISTED_MAX
        limit = min(max(1, wanted.limit), most)
        asked = msgspec.structs.replace(wanted, limit=limit)
        found = await self._directory.news.in_time(
            self._directory.of_registry(lambda it, now_ms: it.documents(asked, now_ms=now_ms))
        )
        fitting = _fitting(found) if wanted.bodies else len(found)
        shown = found[: min(limit, fitting)]
        more = len(found) > len(shown)
        following = f"{shown[-1].kind}/{shown[-1].name}" if more else ""
        return Documents(documents=shown, following=following)

    async def find(self, wanted: DocumentNamed) -> Record:
        _check(wanted)
        found = await self._directory.news.in_time(
            self._directory.of_registry(lambda it, now_ms: it.document(wanted, now_ms=now_ms))
        )
        return _there(found, wanted)

    async def put(self, wanted: DocumentPut) -> Record:
        _check(wanted)
        if len(wanted.body) > DOCUMENT_SIZE_MAX:
            raise TooLarge(
                f"a document has at most {DOCUMENT_SIZE_MAX} bytes, not {len(wanted.body)}"
            )
        if not 0 <= wanted.expires_in_ms <= EXPIRES_MS_MAX:
            raise BadRequest("a document expires after at most ten years; 0: never")
        if REQUEST.fullmatch(wanted.request) is None:
            raise BadRequest("the number of a request is up to 64 hex digits")
        return await self._directory.news.in_time(
            self._directory.of_registry(lambda it, now_ms: it.put_document(wanted, now_ms=now_ms))
        )

    async def delete(self, wanted: DocumentDelete) -> Record:
        _check(wanted)
        gone = await self._directory.news.in_time(
            self._directory.of_registry(
                lambda it, now_ms: it.delete_document(wanted, now_ms=now_ms)
            )
        )
        return msgspec.structs.replace(_there(gone, wanted), body=b"")


def _fitting(found: Sequence[Document]) -> int:
    """How many of these an answer has room for, with their bodies; at least one."""
    sizes = accumulate(each.size for each in found)
    return max(1, sum(size <= DOCUMENTS_LISTED_SIZE_MAX for size in sizes))


def check_document_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise BadName(
            f"{name[:40]!r} cannot be the name of a document: letters, digits and ._%@:+~=- only, "
            "at most 200"
        )


def _check_kind(kind: str) -> None:
    if KIND.fullmatch(kind) is None:
        raise BadName(
            f"{kind[:40]!r} cannot be a kind of documents: letters, digits, '.', '_' and '-' only, "
            "at most 40"
        )


def _check(wanted: DocumentNamed | DocumentPut | DocumentDelete) -> None:
    _check_kind(wanted.kind)
    check_document_name(wanted.name)


def _there(found: Document | None, wanted: DocumentNamed | DocumentDelete) -> Document:
    if found is None:
        raise DocumentNotFound(
            f"there is no document {wanted.kind}/{wanted.name}; it may have expired"
        )
    return found
