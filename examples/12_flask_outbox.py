"""Flask: an order and its message in one transaction, with the blocking client.

    python examples/12_flask_outbox.py

Shows: `Outbox` with `ternmq.sync`, a request that fails after it has "sent". A service runs under
gunicorn (a preloaded one may fork: client and outbox go on in the child); this one calls itself.
"""

import os
import tempfile

from flask import Flask, abort, request
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import ternmq
from ternmq.outbox import Outbox

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.flask"
folder = tempfile.TemporaryDirectory()
engine = create_engine(f"sqlite:///{folder.name}/shop.db")
mq = ternmq.sync.connect(URL, app="shop")
outbox = Outbox(engine, mq, codec="json")
app = Flask("shop")


@app.post("/orders/<int:order>/pay")
def pay(order: int) -> dict[str, str]:
    amount = int(request.args["amount"])
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
        id = outbox.send(session, TOPIC, {"order": order, "amount": amount}, key=f"o-{order}")
        if amount <= 0:
            abort(422)  # Rolls back: no order and no message.
    return {"message": id}


outbox.create_tables()
with engine.begin() as connection:
    connection.execute(text("CREATE TABLE orders (id INTEGER)"))
client = app.test_client()
with outbox:  # Sweeps what is left, of this process and of dead ones.
    for order, amount in ((1, 10), (2, 0), (3, 30)):
        answer = client.post(f"/orders/{order}/pay?amount={amount}")
        print(f"paid    order {order}: {answer.status_code}")
    outbox.flush()
print(f"sent    {outbox.counts.sent}")
for message in mq.read(TOPIC, start="earliest"):
    print(f"stored  {message.key} {message.body.decode()}")
mq.admin.delete_topic(TOPIC)
mq.close()
engine.dispose()
folder.cleanup()
