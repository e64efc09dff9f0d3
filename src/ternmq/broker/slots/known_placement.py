"""The placement as one broker knows it, on its disk too: it outlives an older copy of the registry.

A registry that is put back from an old copy has an older placement: slots that moved since would be
with their former owners again. Clients would send there and be refused, and a broker that starts
would store rows of a key whose earlier ones lie elsewhere, unsettled. So every broker keeps the
last placement that it heard of (the file `placement`), and when the registry has an older one it is
told what was known here: the latest that any broker knows is the one that stands.
"""

import asyncio
from pathlib import Path

import msgspec

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.discovery.directory import Directory
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.topics import Topic

OLDER_FOR_S = 1.0
"""What was changed a moment ago is not in memory everywhere yet."""

log = get_logger()


class KnownPlacement:
    """The directory of a broker, as far as placement goes, and its file."""

    def __init__(self, directory: Directory, disk: Disk, path: Path) -> None:
        self._directory = directory
        self._disk = disk
        self._path = path
        self._noted = 0
        self._older_since = 0.0

    def topic(self, name: str) -> Topic | None:
        return self._directory.topic(name)

    def placement(self) -> Placement | None:
        return self._directory.placement()

    async def place(self, wanted: PlaceChange) -> Placed:
        return await self._directory.place(wanted)

    async def first(self) -> Placement:
        """Before anything is served: the registry's, or what is known here and was after it."""
        found = (await self.place(PlaceChange())).placement
        known = await asyncio.get_running_loop().run_in_executor(None, self._read)
        if known is None:
            return found
        self._noted = known.version
        return found if known.version <= found.version else await self._bring_forward(known, found)

    def is_behind(self, known: Placement) -> bool:
        """Has `keep` something to do: is the file older, or was the registry?"""
        return (
            known.version > self._noted
            or bool(self._older_since)
            or (bool(known.owners) and self._registered_version() < known.version)
        )

    def _registered_version(self) -> int:
        registered = self._directory.placement()
        return -1 if registered is None else registered.version

    async def keep(self, known: Placement) -> Placement:
        """Note it, and tell a registry that has an older one; returns what stands then."""
        loop = asyncio.get_running_loop()
        if known.version > self._noted:
            await loop.run_in_executor(None, self._write, known)
            self._noted = known.version
        registered = self._directory.placement()
        if not known.owners or self._registered_version() >= known.version:
            self._older_since = 0.0
        elif not self._older_since:
            self._older_since = loop.time()
        elif loop.time() - self._older_since > OLDER_FOR_S:
            self._older_since = 0.0
            return await self._bring_forward(known, registered)
        return known

    async def _bring_forward(self, known: Placement, registered: Placement | None) -> Placement:
        wanted = PlaceChange(action="known", known=known)
        stands = (await self.place(wanted)).placement
        if stands == known:
            log.error(
                "the registry had an older placement of order keys: brought forward",
                registry=0 if registered is None else registered.version,
                known=known.version,
            )
        return stands

    def _read(self) -> Placement | None:
        try:
            if not self._disk.exists(self._path):
                return None
            return msgspec.msgpack.decode(self._disk.read(self._path), type=Placement)
        except (TernError, msgspec.MsgspecError) as error:
            log.warning("the placement that was known here cannot be read", reason=str(error))
            return None

    def _write(self, placement: Placement) -> None:
        self._disk.write_atomic(self._path, msgspec.msgpack.encode(placement))
