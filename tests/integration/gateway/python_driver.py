"""The official RocketMQ client for Python, told what to do line by line; a process of its own.

It reads `word name=value name=value` from stdin, values URL-encoded, and answers with any number of
lines `message …` and then `ok …` or `error code=… text=…`. Drivers in other languages speak the
same. Its package and ours would register the same messages twice in one process.
"""

import os
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

from rocketmq import (  # type: ignore[import-untyped]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-untyped]

REQUEST_TIMEOUT_S = 10
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


class Told(MessageListener):  # type: ignore[misc]
    """Notes every message; fails, or takes its time, as it was told."""

    def __init__(self, driver: "Driver", *, failures: int, seconds: float) -> None:
        self._driver = driver
        self._failures = failures
        self._seconds = seconds
        self._failed: dict[str, int] = {}

    def consume(self, message: Any) -> Any:
        time.sleep(self._seconds)
        with self._driver.lock:
            failed = self._failed.get(message.message_id, 0)
            fails = failed < self._failures
            self._failed[message.message_id] = failed + 1
            self._driver.pushed.append(
                {**shown(message), "outcome": "failed" if fails else "handled"}
            )
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    """Answers what it was told to, and notes what it was asked."""

    def __init__(self, driver: "Driver", answer: str) -> None:
        self._driver = driver
        self._answer = RESOLUTIONS[answer]

    def check(self, message: Any) -> Any:
        with self._driver.lock:
            self._driver.checked.append(shown(message))
        return self._answer


class Driver:
    """What was started, and what came."""

    def __init__(self, endpoint: str, key: str, secret: str) -> None:
        credentials = Credentials(key, secret) if key else Credentials()
        self._conf = ClientConfiguration(endpoint, credentials, request_timeout=REQUEST_TIMEOUT_S)
        self.lock = threading.Lock()
        self.pushed: list[dict[str, Any]] = []
        self.checked: list[dict[str, Any]] = []
        self._received: list[Any] = []
        self._producer: Any = None
        self._simple: Any = None
        self._pushes: list[Any] = []

    def producer(self, topics: str, checker: str = "") -> dict[str, Any]:
        asked = Checker(self, checker) if checker else None
        self._producer = Producer(self._conf, topics.split(","), asked)
        self._producer.startup()
        return {}

    def send(self, end: str = "", **given: str) -> dict[str, Any]:
        message = Message()
        message.topic = given["topic"]
        message.body = given["body"].encode()
        if "tag" in given:
            message.tag = given["tag"]
        if "keys" in given:
            for key in given["keys"].split(","):
                message.keys = key
        if "group" in given:
            message.message_group = given["group"]
        if "priority" in given:
            message.priority = int(given["priority"])
        if "after" in given:
            message.delivery_timestamp = int(time.time()) + int(given["after"])
        for name in [name for name in given if name.startswith("p.")]:
            message.add_property(name[2:], given[name])
        if not end:
            receipt = self._producer.send(message)
            return {"id": receipt.message_id, "recall": receipt.recall_handle or ""}
        transaction = self._producer.begin_transaction()
        receipt = self._producer.send(message, transaction)
        if end == "commit":
            transaction.commit()
        elif end == "rollback":
            transaction.rollback()
        return {"id": receipt.message_id}

    def recall(self, topic: str, handle: str) -> dict[str, Any]:
        return {"id": self._producer.recall_message(topic, handle)}

    def simple(self, group: str, topic: str, wait: str = "5", **filters: str) -> dict[str, Any]:
        self._simple = SimpleConsumer(
            self._conf, group, {topic: wanted(filters)}, await_duration=int(wait)
        )
        self._simple.startup()
        return {}

    def receive(self, most: str = "32", invisible: str = "30") -> dict[str, Any]:
        for message in self._simple.receive(int(most), int(invisible)) or []:
            self._received.append(message)
            say("message", {**shown(message), "n": len(self._received) - 1})
        return {}

    def ack(self, n: str) -> dict[str, Any]:
        self._simple.ack(self._received[int(n)])
        return {}

    def change(self, n: str, seconds: str) -> dict[str, Any]:
        self._simple.change_invisible_duration(self._received[int(n)], int(seconds))
        return {}

    def push(
        self, group: str, topic: str, failures: str = "0", seconds: str = "0", **filters: str
    ) -> dict[str, Any]:
        listener = Told(self, failures=int(failures), seconds=float(seconds))
        consumer = PushConsumer(self._conf, group, listener, {topic: wanted(filters)})
        consumer.startup()
        self._pushes.append(consumer)
        return {"fifo": str(consumer.fifo).lower()}

    def came(self) -> dict[str, Any]:
        with self.lock:
            for each in self.pushed:
                say("message", each)
            return {"checked": ",".join(each["body"] for each in self.checked)}

    def close(self) -> dict[str, Any]:
        for consumer in self._pushes:
            consumer.shutdown()
        if self._simple is not None:
            self._simple.shutdown()
        if self._producer is not None:
            self._producer.shutdown()
        return {}


def wanted(filters: dict[str, str]) -> Any:
    if "sql" in filters:
        return FilterExpression(filters["sql"], FilterType.SQL)
    return FilterExpression(filters.get("tag", "*"))


def shown(message: Any) -> dict[str, Any]:
    found = {
        "id": message.message_id,
        "body": message.body.decode(),
        "tag": message.tag or "",
        "keys": ",".join(sorted(message.keys)),
        "group": message.message_group or "",
        "priority": message.priority or 0,
        "attempt": message.delivery_attempt or 0,
        "host": message.born_host or "",
        "corrupted": int(bool(message.corrupted)),
    }
    return found | {f"p.{name}": value for name, value in message.properties.items()}


def say(word: str, values: dict[str, Any]) -> None:
    sys.stdout.write(f"{word} {urlencode(values).replace('&', ' ')}\n")
    sys.stdout.flush()


def main(endpoint: str, key: str = "", secret: str = "") -> None:
    driver = Driver(endpoint, key, secret)
    say("ok", {})
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        values = dict(parse_qsl(rest.replace(" ", "&"), keep_blank_values=True))
        try:
            say("ok", getattr(driver, word)(**values))
        except Exception as error:  # Whatever the client raises is an answer.
            code = getattr(error, "code", None)
            say("error", {"code": code if isinstance(code, int) else 0, "text": str(error)})
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
