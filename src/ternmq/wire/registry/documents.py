"""Documents of the registry: small, versioned, and replaced only by who knew the version."""

from ternmq.wire.record import Number, Record

DOCUMENT_SIZE_MAX = 256 * 1024
"""Bytes of one body."""
DOCUMENTS_MAX = 10_000
"""In one cluster."""
DOCUMENTS_SIZE_MAX = 256 * 1024 * 1024
"""Bytes of all bodies together: ZooKeeper has them in memory."""
DOCUMENTS_LISTED_MAX = 1_000
"""In one answer."""
DOCUMENTS_LISTED_SIZE_MAX = 4 * 1024 * 1024
"""Bytes of bodies in one answer."""


class Document(Record, frozen=True):
    """One document as it is now."""

    kind: str
    name: str
    version: Number
    """Higher than that of any document before it, of this name or another; never used twice."""
    body: bytes = b""
    changed_at_ms: Number = 0
    expires_at_ms: Number = 0
    """By the clock of the meta server that was asked; 0: it stays."""
    size: Number = 0
    """Of the body, also where the body is left out."""


class DocumentNamed(Record, frozen=True):
    """Which one."""

    kind: str
    name: str


class DocumentQuery(Record, frozen=True):
    """Which ones: of a kind (empty: of all kinds), by name."""

    kind: str = ""
    prefix: str = ""
    after: str = ""
    """`following` of the answer before."""
    limit: Number = DOCUMENTS_LISTED_MAX
    bodies: bool = False


class Documents(Record, frozen=True):
    """Some of them, by kind and name."""

    documents: list[Document]
    following: str = ""
    """Ask for more after this; empty: these were the last."""


class DocumentPut(Record, frozen=True):
    """Make a document, or replace it."""

    kind: str
    name: str
    body: bytes
    version: Number | None = None
    """That it has now; 0: there is none; None: whatever it has."""
    expires_in_ms: Number = 0
    """It is gone after that, unless it is put again; 0: it stays."""
    request: str = ""
    """Drawn by who asks: the same one once more is answered, and not done twice."""


class DocumentDelete(Record, frozen=True):
    """Delete a document, if it has that version; None: whatever it has."""

    kind: str
    name: str
    version: Number | None = None
