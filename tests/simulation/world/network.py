"""Connections between simulated processes, with what TCP promises and what it does not.

Bytes of one connection arrive once and in order, in pieces of any size, after a delay. A link
between two machines can be cut in one direction or both: bytes then wait (TCP repeats them) until
it heals. One connection can be stalled for good (nobody is told), or reset. A machine without
power answers nothing; a dead process on a running machine is answered by a reset. Buffers are
bounded, so a peer that does not read makes the other one's transport pause.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world.machine import Machine, Process
    from tests.simulation.world.world import World

HIGH, LOW = 64 * 1024, 16 * 1024
FIN, RESET = b"FIN", b"RESET"
Mark = bytes | None


class Pipe:
    """One direction of a connection."""

    def __init__(self, network: "Network", source: "End", target: "End", capacity: int) -> None:
        self._network = network
        self._world = network.world
        self._source = source
        self._target = target
        self.space = capacity
        self._flying: deque[tuple[float, bytes, Mark]] = deque()
        self._scheduled = False
        self._unheard = 0
        self._last = 0.0

    def put(self, data: bytes, mark: Mark = None) -> None:
        """Send bytes, or a mark: the end, or a reset."""
        self.space -= len(data)
        self._last = max(self._last, self._world.now + self._world.pace.latency())
        for piece in self._world.pace.pieces(data) if data else (b"",):
            self._flying.append((self._last, piece, mark))
        if not self._scheduled:
            self._schedule(self._last)

    def look_again(self) -> None:
        """A link healed or a machine is back. What a machine without power had sent in vain is
        not sent again."""
        if self._source.process.powerless:
            self._flying.clear()
        if self._unheard and not self._network.cut(self._target, self._source):
            heard, self._unheard = self._unheard, 0
            self._acked(heard)
        if self._flying and not self._scheduled:
            self._schedule(self._world.now + self._world.pace.repeat())

    def _schedule(self, when: float) -> None:
        self._scheduled = True
        self._world.at(max(when, self._world.now), self._arrive)

    def _arrive(self) -> None:
        self._scheduled = False
        if not self._flying:
            return
        network, target = self._network, self._target
        if network.cut(self._source, target) or not target.process.machine.up:
            network.waiting[self] = None
            return
        _, data, mark = self._flying.popleft()
        if self._world.hashed or self._world.tell is not None:
            path = f"{self._source.process.machine.name}>{target.process.machine.name}"
            self._world.trace(path, mark or b"", zlib.crc32(data))
        if target.lost or not target.process.alive:
            if mark is None:
                network.answer_reset(target, self._source)
        else:
            target.receive(data, mark)
        if self._flying:
            self._schedule(self._flying[0][0])

    def read(self, count: int) -> None:
        """The target's process has taken so many bytes; the source hears of it, if it can."""
        if self._network.cut(self._target, self._source):
            self._unheard += count
            self._network.waiting[self] = None
        else:
            self._acked(count)

    def _acked(self, count: int) -> None:
        self.space += count
        if self._source.unsent and not self._source.lost and self._source.process.alive:
            self._source.process.loop.call_soon(self._source.writable)


class End(asyncio.Transport):
    """One end of a connection: what a protocol calls its transport."""

    def __init__(self, process: "Process", name: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"sockname": name, "peername": peer})
        self.process = process
        self.loop = process.loop
        self.outgoing: Pipe = None  # type: ignore[assignment]
        self.incoming: Pipe = None  # type: ignore[assignment]
        self.stalled = False
        self.lost = False
        """The kernel knows nothing of it any more."""
        self.unsent = bytearray()
        self._protocol: Any = None
        self._dropped_by: Exception | None = None
        self._received = bytearray()
        self._ended = False
        self._closing = False
        self._eof_written = False
        self._eof_due = False
        self._reading = True
        self._read_ahead = False
        self._writing_paused = False
        self._high, self._low = HIGH, LOW
        process.ends[self] = None

    # What the network does.

    def receive(self, data: bytes, mark: Mark) -> None:
        if mark == RESET:
            self._received.clear()
            self.loop.call_soon(self._drop, ConnectionResetError(104, "Connection reset by peer"))
            return
        self._received += data
        self._ended = self._ended or mark == FIN
        self._look()

    def _look(self) -> None:
        if (self._received or self._ended) and not self._read_ahead and self._reading:
            self._read_ahead = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_ahead = False
        if self.lost or self._closing or not self._reading or self._protocol is None:
            return
        if self._received:
            self._hand_over()
            if not self._closing:
                self._look()
        elif self._ended:
            self._reading = False
            if not self._protocol.eof_received():
                self.close()

    def _hand_over(self) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer: Any = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(self._received))
            buffer[:count] = self._received[:count]
            del self._received[:count]
            self.incoming.read(count)
            self._protocol.buffer_updated(count)
        else:
            data = bytes(self._received)
            self._received.clear()
            self.incoming.read(len(data))
            self._protocol.data_received(data)

    def begin(self, protocol: Any) -> None:
        """The process knows it now; what came before is read next, also a reset."""
        if not self.process.alive:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        if self.lost:
            self.loop.call_soon(protocol.connection_lost, self._dropped_by)
        else:
            self._look()

    def _drop(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = self._closing = True
        self._dropped_by = error
        self.unsent.clear()
        self.process.ends.pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # What protocols call.

    def write(self, data: Any) -> None:
        if self._closing or self._eof_written or self._eof_due or not data:
            return
        self.unsent += data
        self._push()
        if len(self.unsent) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _push(self) -> None:
        count = min(self.outgoing.space, len(self.unsent))
        if count > 0:
            self.outgoing.put(bytes(self.unsent[:count]))
            del self.unsent[:count]

    def writable(self) -> None:
        """There is room again."""
        if self.lost:
            return
        self._push()
        if self._writing_paused and len(self.unsent) <= self._low and not self._closing:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self.unsent:
            if self._closing:
                self._finish()
            elif self._eof_due:
                self._eof_due = False
                self._send_end()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if not self.unsent:
            self._finish()

    def _finish(self) -> None:
        self._send_end()
        self.loop.call_soon(self._drop, None)

    def _send_end(self) -> None:
        if not self._eof_written:
            self._eof_written = True
            self.outgoing.put(b"", FIN)

    def abort(self) -> None:
        if self.lost:
            return
        self._closing = True
        self.unsent.clear()
        self.outgoing.put(b"", RESET)
        self.loop.call_soon(self._drop, None)

    def write_eof(self) -> None:
        if self._eof_written or self._eof_due or self._closing:
            return
        if self.unsent:
            self._eof_due = True
        else:
            self._send_end()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._closing:
            self._reading = True
            self._look()

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH if high is None else high
        self._low = self._high // 4 if low is None else low


class Port:
    """What `create_server` returns."""

    def __init__(self, process: "Process", factory: Callable[[], Any], number: int) -> None:
        self._process = process
        self.factory = factory
        self.number = number
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._process.machine.name, self.number

    def close(self) -> None:
        if self._process.ports.get(self.number) is self:
            del self._process.ports[self.number]


class Network:
    """All links between machines."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.waiting: dict[Any, None] = {}
        """Whoever wants to `look_again` when something heals."""
        self._cuts: set[tuple[str, str]] = set()
        self._next_port = 40_000

    # Links.

    def cut(self, source: "End", target: "End") -> bool:
        return source.stalled or target.stalled or self._apart(source.process, target.process)

    def _apart(self, source: "Process", target: "Process") -> bool:
        return (source.machine.name, target.machine.name) in self._cuts

    def cut_link(self, source: "Machine", target: "Machine") -> None:
        """Nothing gets from source to target until `heal`."""
        self.world.trace("cut", source.name, target.name)
        self._cuts.add((source.name, target.name))

    def heal(self) -> None:
        """Every link works again; stalled connections stay as they are."""
        self.world.trace("heal", "", len(self._cuts))
        self._cuts.clear()
        self.look_again()

    def look_again(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for each in waiting:
            each.look_again()

    # Connections.

    def ends(self) -> list["End"]:
        """Of all processes, in order."""
        return [
            end
            for machine in self.world.machines.values()
            if machine.process is not None and machine.process.alive
            for end in machine.process.ends
        ]

    def stall(self, end: "End") -> None:
        """This connection carries nothing any more, and nobody is told."""
        self.world.trace("stall", end.process.machine.name, 0)
        end.stalled = True

    def resume(self, end: "End") -> None:
        """It carries again, beginning with what was sent meanwhile."""
        self.world.trace("carries", end.process.machine.name, 0)
        end.stalled = False
        self.look_again()

    def reset(self, end: "End") -> None:
        """Somebody on the way resets this connection; each side hears of it by itself."""
        self.world.trace("reset", end.process.machine.name, 0)
        end.outgoing.put(b"", RESET)
        end.incoming.put(b"", RESET)

    def answer_reset(self, dead: "End", source: "End") -> None:
        """The kernel of a machine that knows nothing of a connection says so."""
        if not source.lost and source.process.alive and not self.cut(dead, source):
            self.world.after(self.world.pace.latency(), self._reset_one, source)

    def _reset_one(self, end: "End") -> None:
        if not end.lost and end.process.alive:
            end.receive(b"", RESET)

    def killed(self, process: "Process") -> None:
        """The kernel closes what a dead process had open."""
        for end in process.ends:
            end.lost = True
            end.outgoing.put(b"", self.world.random.choice((FIN, RESET)))

    def listen(self, process: "Process", factory: Callable[[], Any], number: int) -> Port:
        if number in process.ports:
            raise OSError(98, "Address already in use")
        port = process.ports[number] = Port(process, factory, number)
        return port

    async def connect(
        self, process: "Process", factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        attempt = _Attempt(self, process, host, port)
        try:
            end = await attempt.answer
        except asyncio.CancelledError:
            attempt.give_up()
            raise
        protocol = factory()
        end.begin(protocol)
        return end, protocol

    def pair(self, process: "Process", port: Port, target: "Process") -> "End":
        """Both ends of a new connection; the accepting process is told, the other one returned."""
        self._next_port += 1
        mine = (process.machine.name, self._next_port)
        theirs = port.getsockname()
        near, far = End(process, mine, theirs), End(target, theirs, mine)
        capacity = self.world.random.choice((16, 64, 256, 1024)) * 1024
        near.outgoing = far.incoming = Pipe(self, near, far, capacity)
        far.outgoing = near.incoming = Pipe(self, far, near, capacity)
        target.loop.call_soon(_accept, far, port)
        return near


def _accept(end: "End", port: Port) -> None:
    if not end.lost:
        end.begin(port.factory())


class _Attempt:
    """A connection that is being opened."""

    def __init__(self, network: Network, process: "Process", host: str, port: int) -> None:
        self._network = network
        self._world = network.world
        self._process = process
        self._host, self._port = host, port
        self.answer: asyncio.Future[End] = process.loop.create_future()
        self._world.after(self._world.pace.latency(), self._ask)

    def look_again(self) -> None:
        self._world.after(self._world.pace.repeat(), self._ask)

    def give_up(self) -> None:
        if self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None:
            self.answer.result().abort()

    def _ask(self) -> None:
        if self.answer.done() or not self._process.alive:
            return
        machine = self._world.machines.get(self._host)
        if machine is None:
            self._say(OSError(-2, f"{self._host} is no machine"))
            return
        target = machine.process
        away = not machine.up or target is None
        if away or self._cut_from(machine):
            self._network.waiting[self] = None
            return
        port = target.ports.get(self._port) if target is not None and target.alive else None
        if port is None or target is None:
            self._say(ConnectionRefusedError(111, "Connection refused"))
            return
        end = self._network.pair(self._process, port, target)
        self._world.after(self._world.pace.latency(), self._made, end)

    def _cut_from(self, machine: "Machine") -> bool:
        names = (self._process.machine.name, machine.name)
        return names in self._network._cuts or names[::-1] in self._network._cuts

    def _made(self, end: "End") -> None:
        if not self._process.alive:
            return
        if self.answer.done():
            end.abort()
        else:
            self._process.loop.call_soon(self._answered, end)

    def _answered(self, end: "End") -> None:
        if self.answer.done():
            end.abort()
        else:
            self.answer.set_result(end)

    def _say(self, error: OSError) -> None:
        self._process.loop.call_soon(_fail, self.answer, error)


def _fail(future: "asyncio.Future[End]", error: OSError) -> None:
    if not future.done():
        future.set_exception(error)
