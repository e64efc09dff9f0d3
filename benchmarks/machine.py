"""The machine a benchmark ran on, and its floor: what the disk and a bare socket loop can do.

Figures mean little without the machine, and absolute rates on a shared machine mean little at all:
`describe` says where a run took place, and the two floors, measured in the same run, turn rates
into ratios. Everything is written inside the directory handed in and removed again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import socket
import struct
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_APPEND_BYTES = 4096
_HEADER = struct.Struct("<I")
_ANSWER = b"\x01" * 16
"""As long as a publish answer without a body: one header."""
DEPTH = 8
"""Frames on their way at once, as in our publish benchmark."""


def describe(directory: Path) -> dict[str, Any]:
    """Cores, memory, kernel, Python, the file system of `directory`, commit and time."""
    memory_kb = int(_field(Path("/proc/meminfo"), "MemTotal").split()[0])
    commit = _output("git", "rev-parse", "--short=12", "HEAD")
    changed = bool(_output("git", "status", "--porcelain", "--untracked-files=no"))
    return {
        "cores": os.cpu_count(),
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "memory_gib": round(memory_kb / 1024 / 1024, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": _file_system(directory),
        "load_1_min": round(os.getloadavg()[0], 2),
        "commit": f"{commit}+changes" if commit and changed else commit,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def fdatasync_profile(
    directory: Path, seconds: float = 2.0, limit: int = 3_000
) -> dict[str, float]:
    """fdatasync after each 4 KiB append, one after another: p50, p99 and worst in ms, and rate."""
    path = directory / f"fdatasync-{os.getpid()}.probe"
    block = os.urandom(_APPEND_BYTES)
    took: list[float] = []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    try:
        began = time.perf_counter()
        stop_at = began + seconds
        while time.perf_counter() < stop_at and len(took) < limit:
            os.write(handle, block)
            before = time.perf_counter()
            os.fdatasync(handle)
            took.append(time.perf_counter() - before)
        elapsed = time.perf_counter() - began
    finally:
        os.close(handle)
        path.unlink()
    took.sort()
    return {
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[min(len(took) - 1, int(len(took) * 0.99))] * 1e3,
        "worst_ms": took[-1] * 1e3,
        "rate": len(took) / elapsed,
        "count": float(len(took)),
    }


def bare_loop_rate(
    directory: Path, frame_size: int = 104 * 1024, seconds: float = 1.5, rounds: int = 3
) -> float:
    """Bytes/s of the least a durable broker can do: socket -> writev -> fdatasync -> answer.

    Two processes, `DEPTH` frames on their way; the receiver writes all whole frames that wait with
    one writev and one fdatasync and then answers each. The best of `rounds`: machines are noisy.
    """
    return max(_bare_loop(directory, frame_size, seconds) for _ in range(rounds))


def _bare_loop(directory: Path, frame_size: int, seconds: float) -> float:
    path = directory / f"bare-loop-{os.getpid()}.probe"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    receiver = multiprocessing.get_context("fork").Process(
        target=_receive, args=(listener, path, frame_size), daemon=True
    )
    receiver.start()
    listener.close()
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            return _send(connection, frame_size, seconds)
    finally:
        receiver.join(5)
        if receiver.is_alive():
            receiver.kill()
            receiver.join()
        path.unlink(missing_ok=True)


def _send(connection: socket.socket, frame_size: int, seconds: float) -> float:
    """Keeps `DEPTH` frames on their way; bytes/s of the frames that were answered."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frame = _HEADER.pack(frame_size - _HEADER.size) + os.urandom(frame_size - _HEADER.size)
    sent = 0
    answer_bytes = 0
    began = time.perf_counter()
    stop_at = began + seconds
    while time.perf_counter() < stop_at:
        connection.sendall(frame)
        sent += 1
        while sent - answer_bytes // len(_ANSWER) >= DEPTH:
            answer_bytes += _some_answers(connection)
    while answer_bytes < sent * len(_ANSWER):
        answer_bytes += _some_answers(connection)
    return sent * frame_size / (time.perf_counter() - began)


def _some_answers(connection: socket.socket) -> int:
    received = len(connection.recv(DEPTH * len(_ANSWER)))
    if not received:
        raise ConnectionError("the receiver of the bare loop went away")
    return received


def _receive(listener: socket.socket, path: Path, frame_size: int) -> None:
    """Writes and syncs every whole frame that waits as one group, then answers the group."""
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = memoryview(bytearray(DEPTH * frame_size))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    filled = 0
    try:
        while received := connection.recv_into(room[filled:]):
            filled += received
            frames = _whole_frames(room[:filled])
            if not frames:
                continue
            whole = sum(map(len, frames))
            written = os.writev(handle, frames)
            assert written == whole, "a regular file takes all that fits on the disk"
            os.fdatasync(handle)
            connection.sendall(_ANSWER * len(frames))
            room[: filled - whole] = room[whole:filled]
            filled -= whole
    finally:
        os.close(handle)
        connection.close()


def _whole_frames(received: memoryview) -> list[memoryview]:
    """The frames that are there to their end, found by their length headers."""
    frames = []
    at = 0
    while at + _HEADER.size <= len(received):
        end = at + _HEADER.size + _HEADER.unpack_from(received, at)[0]
        if end > len(received):
            break
        frames.append(received[at:end])
        at = end
    return frames


def _field(path: Path, name: str) -> str:
    """The first `name: value` line of a /proc file; empty if there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")


def _file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`: its longest mount point's."""
    whole = directory.resolve()
    best, found = -1, ""
    for line in Path("/proc/mounts").read_text().splitlines():
        mount_point, kind = line.split()[1:3]
        if whole.is_relative_to(mount_point) and len(mount_point) >= best:
            best, found = len(mount_point), kind
    return found


def _output(*command: str) -> str:
    """What a command prints, or nothing where it does not exist or fails."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def main() -> None:
    """Print the machine and its floors, as JSON."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        facts = describe(directory)
        facts["fdatasync_4k"] = fdatasync_profile(directory)
        facts["bare_loop_bytes_per_s"] = bare_loop_rate(directory)
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
