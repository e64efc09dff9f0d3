"""Who of several programs runs something: the holder of a document that expires.

Every program that could run it asks for the lease; one gets it, and renews it while it works. When
that one dies, its document expires, and the next one that asks gets it. A holder that could not
renew for `LEASE_SAFE` of the time has lost it: it stops before another one begins, if the clocks of
the two meta servers that were asked differ by less than the rest. What must not happen twice even
then needs a guard of its own.
"""

import time
from contextlib import suppress

from ternmq.client.documents.documents import RegistryDocuments
from ternmq.core.errors import TernError, VersionMismatch

LEASE_SAFE = 0.7


class DocumentLease:
    """One lease, as one program sees it."""

    def __init__(
        self,
        documents: RegistryDocuments,
        kind: str,
        name: str,
        *,
        holder: str,
        seconds: float,
    ) -> None:
        self._documents = documents
        self._kind = kind
        self._name = name
        self._holder = holder
        self._seconds = seconds
        self._version = 0
        self._renewed_at = float("-inf")

    @property
    def held(self) -> bool:
        """Is it certainly ours at this moment?"""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """For so long it is certainly ours."""
        if not self._version:
            return 0.0
        return max(0.0, self._renewed_at + LEASE_SAFE * self._seconds - time.monotonic())

    async def take(self) -> bool:
        """Get it, or keep it; False: another one has it. Raises `Unavailable` and goes on holding
        what it held."""
        asked_at = time.monotonic()
        try:
            put = await self._documents.put(
                self._kind,
                self._name,
                {"holder": self._holder},
                version=self._version,
                expires=self._seconds,
            )
        except VersionMismatch:
            self._version = 0
            return False
        self._version, self._renewed_at = put.version, asked_at
        return True

    async def let_go(self) -> None:
        """The next one need not wait; a registry that does not answer is no error."""
        version, self._version = self._version, 0
        if version:
            with suppress(TernError):  # It expires by itself.
                await self._documents.delete(self._kind, self._name, version=version)
