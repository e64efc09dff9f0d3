"""An inbox: a message that comes twice takes effect once.

    python examples/14_inbox.py

Shows: `Inbox`, a handler with a session, one that fails half way, and the same order sent twice.
"""

import asyncio
import os
import tempfile
import threading

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import ternmq
from ternmq.inbox import Inbox

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.inbox"
folder = tempfile.TemporaryDirectory()
engine = create_engine(f"sqlite:///{folder.name}/shop.db")
inbox = Inbox(engine, key=lambda message: str(message.key))  # The order, not the message, counts.
app = ternmq.App(URL, app="billing")
done = threading.Semaphore(0)


@app.subscriber(TOPIC, group="billing", start="earliest", inbox=inbox, retry_after=0.1)
def bill(message: ternmq.Message, session: Session) -> None:
    session.execute(text("INSERT INTO invoices VALUES (:order)"), {"order": message.key})
    if message.key == "o-2" and message.attempt == 1:
        raise ConnectionError("the bank does not answer")  # Invoice and record are rolled back.
    print(f"billed  {message.key} at attempt {message.attempt}")
    done.release()


async def main() -> None:
    async with app:
        for order in ("o-1", "o-1", "o-2", "o-2", "o-1", "o-3"):
            await app.mq.send(TOPIC, b"...", key=order)
        for _ in range(3):
            await asyncio.to_thread(done.acquire)


inbox.create_tables()
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE invoices (id TEXT)"))
asyncio.run(main())
with engine.connect() as connection:
    invoices = connection.execute(text("SELECT id FROM invoices")).scalars().all()
print(f"bills   {sorted(invoices)}")
with ternmq.sync.connect(URL, app="billing") as mq:
    mq.admin.delete_topic(TOPIC)
engine.dispose()
folder.cleanup()
