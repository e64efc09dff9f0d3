"""An encrypted topic: bodies that servers cannot read, and messages about a person erased at once.

    python examples/17_encryption.py

Shows: a master key in a file, `master_key` of a topic, `subject=`, a client without the key, erase.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import ternmq
from ternmq.wire.messages.topics import TopicSettings

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.encryption"


async def main(key_file: Path) -> None:
    async with ternmq.connect(URL, keys={"example": f"file:{key_file}"}) as mq:
        await mq.admin.create_topic(TOPIC, TopicSettings(master_key="example"))
        await mq.send(TOPIC, b"an order of Ada", key="o-1", subject="ada")
        await mq.send(TOPIC, b"an order of Bob", key="o-2", subject="bob")
        async for message in mq.read(TOPIC):
            print(f"with the key   {message.key}: {message.body.decode()}")

    async with ternmq.connect(URL, keys={}) as stranger:
        async for message in stranger.read(TOPIC):
            try:
                print(message.body)
            except ternmq.KeyNotFound as error:
                print(f"without it     {message.key}: {error.code}")

    async with ternmq.connect(URL, keys={"example": f"file:{key_file}"}) as mq:
        print(f"erased         ada in {await mq.admin.erase('ada')}")
        async for message in mq.read(TOPIC):
            shown = "erased" if message.erased else message.body.decode()
            print(f"afterwards     {message.key}: {shown}")
        await mq.admin.delete_topic(TOPIC)


with tempfile.TemporaryDirectory() as folder:
    key = Path(folder) / "example.key"
    key.write_text(os.urandom(32).hex())  # As 'tern key make FILE' does.
    key.chmod(0o600)
    asyncio.run(main(key))
