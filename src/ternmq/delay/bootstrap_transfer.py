"""Sends the files of a delay server to a replica whose logs end before the leader's begin.

BASE_OPEN holds a base: what the files are now, and the rest of the logs from there on. BASE_READ
reads pieces of it. It is let go when the connection ends; a replica that did not get all of it
begins again. `fetch` is the replica's side: it asks for a few pieces ahead and writes them into a
folder apart, which counts only when it is whole.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from ternmq.core.errors import BadRequest, NotMaster, ProtocolError
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting, proven
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.replication import BaseOpen, BaseOpened, BasePiece, BaseRead
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

PIECE = MIB
AHEAD = 4
OPEN_S = 3.0
ANSWER_S = 30.0
MANIFEST = "manifest"

log = get_logger()


class BootstrapLender:
    """The master's side: one base for a connection."""

    def __init__(
        self,
        group: str,
        epoch: int,
        make: Callable[[], Awaitable[BootstrapFiles]],
        on_open: Callable[[str], None],
    ) -> None:
        """`on_open` hears which member is about to follow from where the logs begin now."""
        self._group = group
        self._epoch = epoch
        self._make = make
        self._on_open = on_open
        self._answering = PendingRequests()
        self._bases: dict[Peer, BootstrapFiles] = {}

    def open(self, peer: Peer, frame: Frame) -> None:
        proven(peer).check_group("delay", self._group)
        self._answering.begin(peer, frame, self._open(peer, unpack(frame.payload, BaseOpen)))

    def read(self, peer: Peer, frame: Frame) -> None:
        self._answering.begin(peer, frame, self._read(peer, unpack(frame.payload, BaseRead)))

    async def _open(self, peer: Peer, wanted: BaseOpen) -> BaseOpened:
        if wanted.epoch != self._epoch:
            raise NotMaster(f"this server leads epoch {self._epoch}, not {wanted.epoch}")
        self.lost(peer)
        base = await self._make()
        if peer.closed:
            base.close()
            raise NotMaster("the replica is gone")
        self._bases[peer] = base
        self._on_open(wanted.member)
        log.info("a replica begins with the files", member=wanted.member, files=len(base.files))
        return BaseOpened(size=len(base.manifest))

    async def _read(self, peer: Peer, wanted: BaseRead) -> BasePiece:
        base = self._bases.get(peer)
        if base is None or not 0 < wanted.size <= PIECE:
            raise ProtocolError("BASE_READ without BASE_OPEN, or of too much")
        if wanted.kind == MANIFEST:
            return BasePiece(data=base.manifest[wanted.offset : wanted.offset + wanted.size])
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(
            None, base.read, wanted.kind, wanted.hour, wanted.offset, wanted.size
        )
        return BasePiece(data=data)

    def lost(self, peer: Peer) -> None:
        """A connection is gone; what was held for it is let go."""
        base = self._bases.pop(peer, None)
        if base is not None:
            base.close()

    async def close(self) -> None:
        await self._answering.finish()
        for peer in list(self._bases):
            self.lost(peer)


class BootstrapTarget(Protocol):
    """Makes the folder apart, for these contents; blocks."""

    def __call__(self, manifest: bytes) -> BootstrapInstall: ...


async def fetch(
    address: str, greeting: Greeting, wanted: BaseOpen, install: BootstrapTarget
) -> None:
    """Get a base from a master and put it in place; the store is closed meanwhile."""
    loop = asyncio.get_running_loop()
    connection = await Connection.open(address, greeting, timeout=OPEN_S)
    try:
        opened = await request(connection, Command.BASE_OPEN, wanted, BaseOpened, timeout=ANSWER_S)
        manifest = bytearray()
        await _read(connection, MANIFEST, 0, opened.size, _append(manifest))
        installing = await loop.run_in_executor(None, install, bytes(manifest))
        for file in installing.files:

            async def write(
                offset: int, data: bytes, kind: str = file.kind, hour: int = file.hour
            ) -> None:
                await loop.run_in_executor(None, installing.write, kind, hour, offset, data)

            await _read(connection, file.kind, file.hour, file.length, write)
        await loop.run_in_executor(None, installing.finish)
        log.info("begun with the master's files", files=len(installing.files))
    finally:
        connection.abort()


def _append(manifest: bytearray) -> "Take":
    async def take(offset: int, data: bytes) -> None:
        manifest.extend(data)

    return take


Take = Callable[[int, bytes], Awaitable[None]]


async def _read(connection: Connection, kind: str, hour: int, length: int, take: Take) -> None:
    """Hand over a file in pieces, in order; a few are asked for ahead."""
    asked: deque[tuple[int, int, asyncio.Task[BasePiece]]] = deque()
    at = 0
    try:
        while at < length or asked:
            while at < length and len(asked) < AHEAD:
                size = min(PIECE, length - at)
                piece = BaseRead(kind=kind, hour=hour, offset=at, size=size)
                task = asyncio.ensure_future(
                    request(connection, Command.BASE_READ, piece, BasePiece, timeout=ANSWER_S)
                )
                asked.append((at, size, task))
                at += size
            offset, size, task = asked.popleft()
            data = (await task).data
            if len(data) != size:
                raise BadRequest(f"the master's {kind} of {hour} ends at {offset + len(data)}")
            await take(offset, data)
    finally:
        for _, _, task in asked:
            task.cancel()
