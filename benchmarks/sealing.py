"""`python -m benchmarks.sealing`: what encrypted bodies cost, beside the same in plain.

In one process: CPU to encode a batch and to read its bodies, in microseconds a message, and bulk
through a node in the same process (so client and broker together), plain and encrypted topics in
turns. CPU per message travels between machines better than rates do.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ternmq
from ternmq.batch.encoder import Origin, encode_bodies, encode_sealed
from ternmq.batch.layout import Encoding
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from ternmq.security.private_files import write_new
from ternmq.security.sealing.data_key import DataKey
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.testing.node import node
from ternmq.wire.messages.topics import TopicSettings

ROWS = 4_000
PRODUCER = ProducerId(start_ms=1, random=1)
ORIGIN = Origin(topic="t", app="bench", producer=PRODUCER)
KEY = DataKey(1, "t", bytes(32))


def body_of(size: int, number: int) -> bytes:
    text = f'{{"order": {number}, "amount": {number * 7 % 1000}, "note": "'
    return (text + "lorem ipsum dolor sit amet " * (size // 20)).encode()[:size]


def cpu_us(work: Callable[[], object], rounds: int = 5) -> float:
    """Median CPU of one call, a message."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found) / ROWS * 1e6


def codec(size: int) -> dict[str, float]:
    """Encoding and reading a batch, without sockets."""
    bodies = [body_of(size, at) for at in range(ROWS)]

    def plain() -> bytearray:
        return encode_bodies(bodies, origin=ORIGIN, first_sequence=0, born_at_ms=1)

    def sealed() -> bytearray:
        made = [
            KEY.encrypt(body, number, number, Encoding.ZSTD)
            for at, body in enumerate(bodies)
            for number in (PRODUCER.message_id(at).to_bytes(16, "big"),)
        ]
        ciphers, seals = zip(*made, strict=True)
        return encode_sealed(ciphers, seals, origin=ORIGIN, first_sequence=0, born_at_ms=1)

    whole, closed = plain(), sealed()

    def opened() -> list[bytes]:
        view = BatchView(closed)
        return [
            KEY.decrypt(body, seal or b"", view.id_bytes(row))
            for row, (body, seal) in enumerate(zip(view.bodies(), view.seals(), strict=True))
        ]

    assert opened() == bodies
    return {
        "encode_plain_us": cpu_us(plain),
        "encode_sealed_us": cpu_us(sealed),
        "read_plain_us": cpu_us(lambda: BatchView(whole).bodies()),
        "read_sealed_us": cpu_us(opened),
        "size_plain": len(whole) / ROWS,
        "size_sealed": len(closed) / ROWS,
    }


async def bulk(url: str, keys: str, size: int, count: int, rounds: int) -> dict[str, float]:
    """Send and consume, plain and encrypted in turns."""
    bodies = [body_of(size, at) for at in range(count)]
    found: dict[str, list[float]] = {}
    async with ternmq.connect(url, keys=keys) as mq:
        for turn in range(rounds):
            for name, settings in (
                ("plain", TopicSettings()),
                ("sealed", TopicSettings(master_key="bench")),
            ):
                topic = f"{name}-{size}-{turn}"
                await mq.admin.create_topic(topic, settings)
                while name == "sealed" and topic not in mq.cluster.keyring.topics:
                    await mq.cluster.refresh()
                cpu, began = time.process_time(), time.monotonic()
                await mq.send_many(topic, bodies)
                done = 0
                async with mq.consumer(topic, group="g", start="earliest", prefetch=20_000) as all_:
                    async for batch in all_.batches():
                        done += len(batch.bodies)
                        batch.ack()
                        if done >= count:
                            break
                found.setdefault(f"{name}_cpu_us", []).append(
                    (time.process_time() - cpu) / count * 1e6
                )
                found.setdefault(f"{name}_rate", []).append(count / (time.monotonic() - began))
                await mq.admin.delete_topic(topic)
    return {name: statistics.median(values) for name, values in found.items()}


async def main(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "bench.key"
        write_new(key, new_key_text().encode())
        async with node() as url:
            for size in (100, 1_000):
                shown = codec(size) | await bulk(url, f"bench=file:{key}", size, count, rounds)
                print(json.dumps({"body": size} | {name: round(v, 2) for name, v in shown.items()}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("TERN_LOG_LEVEL", "error")
    asyncio.run(main(given.count, given.rounds))
