"""The standings that this meta server saw last, in the file `standings-seen`.

Nothing is restored from the file. It is only compared with the registry at the next start: one that
knows less of a group was restored from an old copy. The group is then not decided until its members
have proven how it stood (`claims`), however few of them know more than the copy. Another registry
than the one that was seen says nothing.
"""

import asyncio
from pathlib import Path

import msgspec

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.meta.directory import MetaDirectory
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.standings import Standing

WRITE_S = 0.2

log = get_logger()


class SeenStanding(msgspec.Struct, frozen=True):
    cluster: str
    standings: list[Standing]


class SeenStandings:
    """Standings that one meta server has seen."""

    def __init__(self, directory: MetaDirectory, path: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._path = path
        self._changed = asyncio.Event()
        directory.on_standing_changed(lambda _: self._changed.set())

    async def check(self) -> None:
        """Compare the file with the registry; once, before the first request is answered."""
        loop = asyncio.get_running_loop()
        try:
            seen = await loop.run_in_executor(None, self._read)
        except (TernError, msgspec.MsgspecError) as error:
            log.warning("what was seen of the registry cannot be read", reason=str(error))
            return
        if seen is not None and seen.cluster == self._directory.cluster:
            await self._directory.check_seen(seen.standings)

    async def run(self) -> None:
        """Write the standings down whenever they change."""
        loop = asyncio.get_running_loop()
        while True:
            await self._changed.wait()
            self._changed.clear()
            decided = [each for each in self._directory.standings() if not each.claims]
            seen = SeenStanding(self._directory.cluster, decided)
            try:
                await loop.run_in_executor(None, self._write, seen)
            except TernError as error:
                log.warning("what is seen of the registry is not noted", reason=error.message)
            await asyncio.sleep(WRITE_S)

    def _read(self) -> SeenStanding | None:
        if not self._disk.exists(self._path):
            return None
        return msgspec.msgpack.decode(self._disk.read(self._path), type=SeenStanding)

    def _write(self, seen: SeenStanding) -> None:
        self._disk.write_atomic(self._path, msgspec.msgpack.encode(seen))
