"""A small shop in a process of its own, which tests kill at chosen points.

    python -m tests.integration.shop sell  URL DB_URL TOPIC POINT ORDER
    python -m tests.integration.shop bill  URL DB_URL TOPIC POINT

`sell` writes one order and its message in one transaction; `bill` handles messages with an inbox,
one invoice each. POINT is where the process gets SIGKILL from itself: the product has no such
switch, this program wraps the functions around the point.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

import ternmq
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox, OutboxRows, Relay, RelaySettings

SELL_POINTS = (
    "before the insert",
    "after the insert",
    "after the commit",
    "before the send",
    "after the send",
    "before the delete is committed",
    "after the delete",
)
COMMITTED_FROM = SELL_POINTS.index("after the commit")
BILL_POINTS = (
    "after the record",
    "after the work",
    "after the commit",
    "never",
)
SETTINGS = RelaySettings(grace=0.5, lease=1.0, poll=0.05)


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner: Any, name: str, *, before: bool) -> None:
    """Die before or after a method."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if before:
            die()
        result = original(*arguments, **named)
        die()
        return result

    async def wrapped_async(*arguments: Any, **named: Any) -> Any:
        if before:
            die()
        result = await original(*arguments, **named)
        die()
        return result

    is_async = asyncio.iscoroutinefunction(original)
    setattr(owner, name, wrapped_async if is_async else wrapped)


def prepare(point: str) -> None:
    """Put the end into the right place."""
    if point == "before the insert":
        wrap(Outbox, "_insert", before=True)
    elif point == "after the insert":
        wrap(Outbox, "_insert", before=False)
    elif point == "after the commit":
        wrap(Outbox, "wake", before=True)
    elif point == "before the send":
        wrap(Relay, "_send", before=True)
    elif point == "after the send":
        wrap(Relay, "_send", before=False)
    elif point == "before the delete is committed":
        wrap(OutboxRows, "delete", before=False)
    elif point == "after the delete":
        wrap(Relay, "_settle", before=False)


def sell(url: str, database: str, topic: str, point: str, order: str) -> None:
    engine = create_engine(database)
    prepare(point)
    with ternmq.sync.connect(url, app="shop") as mq:
        outbox = Outbox(engine, mq, settings=SETTINGS)
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": int(order)})
            outbox.send(session, topic, order.encode(), key=order)
        outbox.flush()


def bill(url: str, database: str, topic: str, point: str) -> None:
    """Takes messages until killed; dies at the first, if at all."""
    engine = create_engine(database)
    inbox = Inbox(engine)
    app = ternmq.App(url, app="billing")
    if point == "after the record":
        wrap(Inbox, "_take", before=False)
    elif point == "after the commit":
        event.listen(Session, "after_commit", die)

    @app.subscriber(topic, group="billing", inbox=inbox, start="earliest", prefetch=2)
    def invoice(message: Any, session: Any) -> None:
        values = {"id": int(message.body)}
        session.execute(text("INSERT INTO invoices (order_id) VALUES (:id)"), values)
        if point == "after the work":
            die()

    app.run()


if __name__ == "__main__":
    jobs: dict[str, Any] = {"sell": sell, "bill": bill}
    jobs[sys.argv[1]](*sys.argv[2:])
