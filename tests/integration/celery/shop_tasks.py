"""The tasks of the tests here; a worker imports this module by name."""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

app = Celery("shop", broker=os.environ.get("TERN_URL", "tern://127.0.0.1:1"), backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
)


@app.task
def add(one: int, other: int) -> int:
    return one + other


@app.task
def now() -> float:
    return time.time()


@app.task(bind=True, max_retries=3)
def second_time(self: Any, number: int) -> int:
    if self.request.retries < 1:
        raise self.retry(countdown=0.2)
    return number


@app.task
def hang(notes: str, seconds: float) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)


@app.task(bind=True, acks_late=True)
def refuse(self: Any) -> None:
    raise Reject("no", requeue=False)
