"""A small shop in a process of its own, which tests kill at chosen points.

    python -m tests.integration.outbox.shop sell  URL DB_URL TOPIC POINT ORDER
    python -m tests.integration.outbox.shop bill  URL DB_URL TOPIC POINT
    python -m tests.integration.outbox.shop trade URL DB_URL TOPIC SEED COUNT

`sell` writes one order and its message in one transaction; `bill` handles messages with an inbox,
one invoice each. POINT is where the process gets SIGKILL from itself: the product has no such
switch, this program wraps the functions around the point. `trade` makes COUNT business transactions
(0: for ever) in threads, some of which roll back: the next order of a customer, and its message.
"""

import itertools
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import ternmq
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox, OutboxRows, Relay, RelaySettings
from tests.integration.kill_points import die, wrap

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
CUSTOMERS = 10
ORDERS_MAX = 1_000_000
"""Of one customer: the number of an order is customer * ORDERS_MAX + how many they had."""
ROLLED_BACK = 0.3
THREADS = 8


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


def patient_engine(database: str) -> Engine:
    """SQLite's writers wait for each other longer than its five seconds when all are busy."""
    is_sqlite = database.startswith("sqlite")
    return create_engine(database, connect_args={"timeout": 60} if is_sqlite else {})


def trade(url: str, database: str, topic: str, seed: str, count: str) -> None:
    engine = patient_engine(database)
    numbers = iter(range(int(count))) if int(count) else itertools.count()
    with ternmq.sync.connect(url, app="shop") as mq, Outbox(engine, mq, settings=SETTINGS) as box:

        def work(thread: int) -> None:
            chance = random.Random(f"{seed} {thread}")
            for _ in numbers:
                while not order_something(engine, box, topic, chance):
                    pass

        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work, thread) for thread in range(THREADS)]:
                done.result()


def order_something(engine: Engine, outbox: Outbox, topic: str, chance: random.Random) -> bool:
    """One business transaction, committed or rolled back; False: the database said no."""
    customer, keeps = chance.randrange(CUSTOMERS), chance.random() >= ROLLED_BACK
    who = {"customer": customer}
    try:
        with Session(engine) as session:
            session.execute(text("UPDATE customers SET had = had + 1 WHERE id = :customer"), who)
            had = session.execute(text("SELECT had FROM customers WHERE id = :customer"), who)
            order = customer * ORDERS_MAX + had.scalar_one()
            session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
            outbox.send(session, topic, b"%d" % order, order_key=str(customer))
            session.commit() if keeps else session.rollback()
    except OperationalError:  # A deadlock, a server that is gone: a shop would try again.
        return False
    return True


def bill(url: str, database: str, topic: str, point: str) -> None:
    """Takes messages until killed; dies at the first, if at all."""
    engine = patient_engine(database)
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
    jobs: dict[str, Any] = {"sell": sell, "bill": bill, "trade": trade}
    jobs[sys.argv[1]](*sys.argv[2:])
