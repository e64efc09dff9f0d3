"""RocketMQ: a name server, a broker with its gRPC proxy in one JVM, and rocketmq-python-client.

The client has no batch call: publishing keeps a window of asynchronous sends, consuming keeps
several receives (POP) on their way and acks each message from a pool of threads (the client's
asynchronous ack hands back nothing to wait for, and fails outside of an event loop). The proxy
takes only topics and groups that exist, so the store is laid out with them before the broker
starts: one file each for topics, groups, and offsets that make every group begin at the start.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, TOPICS, ClientRecipe, Limits, Pace
from benchmarks.peers.java import ROCKETMQ
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import PeerFailed, ServerProcess, free_ports, port_answers

_WINDOW = 1_024
_RECEIVE = 32
"""Messages a receive asks for: the most that the broker hands out by default."""
_RECEIVES = 8
_ACKERS = 16
_INVISIBLE_SECONDS = 60
_QUEUES = 8
_JOIN_SECONDS = 10.0
_ROUTE_SECONDS = 40.0


class RocketClient:
    """Producers and consumers live in the calls that need them."""

    def __init__(self, port: int, home: str) -> None:
        # The client writes its log below the home directory: that one goes away with the server.
        os.environ["HOME"] = home
        from rocketmq import ClientConfiguration, Credentials  # type: ignore[import-untyped]
        from rocketmq.v5.util.misc import Misc  # type: ignore[import-untyped]

        # Else it asks the kernel for a route to a host outside to learn its own address.
        Misc._Misc__LOCAL_IP = "127.0.0.1"
        self._config = ClientConfiguration(f"127.0.0.1:{port}", Credentials(), request_timeout=10)

    def prepare(self, topic: str, groups: list[str]) -> None:
        if len(groups) > TOPICS.get(topic, 0):
            raise PeerFailed(f"{topic} with {len(groups)} groups was not laid out at the start")

    def wait_for_route(self, topic: str) -> None:
        """Return once the proxy knows the topic: after the broker told the name server of it."""
        producer = self._producer(topic)
        deadline = time.monotonic() + _ROUTE_SECONDS
        while True:
            try:
                # Nothing public asks for a route without sending.
                producer._retrieve_topic_route_data(topic)
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        producer.shutdown()

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        producer = self._producer(topic)
        waiting: deque[Future[Any]] = deque()
        done = 0
        meter.begin()
        while meter.room(done):
            waiting.append(producer.send_async(_message(topic, b"x" * BODY_SIZE)))
            done += 1
            if len(waiting) >= _WINDOW:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
        meter.end(done)
        producer.shutdown()

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        producer = self._producer(topic)
        took: list[float] = []

        def caller() -> None:
            while meter.room(len(took)):
                began = time.perf_counter()
                producer.send(_message(topic, b"x" * BODY_SIZE))
                took.append(time.perf_counter() - began)

        with ThreadPoolExecutor(callers) as threads:
            meter.begin()
            for each in [threads.submit(caller) for _ in range(callers)]:
                each.result()
            meter.end(len(took))
        producer.shutdown()
        return took

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        consumer = self._consumer(topic, group)
        meter.begin()
        taken = _take(consumer, 1 if one_by_one else _RECEIVES, lambda bodies: None, meter)
        meter.end(taken)
        _leave(consumer)

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        consumers = [self._consumer(topic, group) for group in groups]
        each = meter.count // len(groups)
        done = [0] * len(groups)

        def drain(index: int) -> None:
            share = Meter(count=each, seconds=meter.seconds)
            share.begin()
            done[index] = _take(consumers[index], 1, lambda bodies: None, share)

        with ThreadPoolExecutor(len(groups)) as threads:
            meter.begin()
            list(threads.map(drain, range(len(groups))))
            meter.end(sum(done))

    def publish_paced(self, topic: str, pace: Pace) -> int:
        producer = self._producer(topic)
        waiting: deque[Future[Any]] = deque()
        sent = 0
        stop_at = time.monotonic() + 2 * pace.count / pace.rate
        for bodies in due_batches(pace.rate, pace.count, BODY_SIZE):
            if time.monotonic() > stop_at:
                break
            for body in bodies:
                waiting.append(producer.send_async(_message(topic, body)))
                while len(waiting) >= _WINDOW or (waiting and waiting[0].done()):
                    waiting.popleft().result()
                    sent += 1
                if time.monotonic() > stop_at:
                    break
            if not bodies:
                time.sleep(0.0005)
        for future in waiting:
            future.result()
        producer.shutdown()
        return sent + len(waiting)

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        consumer = self._consumer(topic, group)
        ages: list[int] = []
        ready()
        meter.begin()
        meter.end(_take(consumer, _RECEIVES, lambda got: ages.extend(map(age_ns, got)), meter))
        _leave(consumer)
        return ages

    def close(self) -> None:
        """Nothing is kept between calls."""

    def _producer(self, topic: str) -> Any:
        from rocketmq import Producer

        producer = Producer(self._config, (topic,))
        producer.startup()
        return producer

    def _consumer(self, topic: str, group: str) -> _Joined:
        """A consumer whose settings the proxy knows: until then it refuses to be received from."""
        from rocketmq import FilterExpression, SimpleConsumer
        from rocketmq.v5.exception import ClientException  # type: ignore[import-untyped]

        subscription = {topic: FilterExpression()}
        consumer = SimpleConsumer(self._config, f"{topic}-{group}", subscription, await_duration=1)
        consumer.startup()
        deadline = time.monotonic() + _JOIN_SECONDS
        while True:
            try:
                return _Joined(consumer=consumer, first=consumer.receive(1, _INVISIBLE_SECONDS))
            except ClientException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A consumer, what it received when first tried, and the receives on their way."""

    consumer: Any
    first: list[Any]
    asked: deque[Future[Any]] = field(default_factory=deque)


def _message(topic: str, body: bytes) -> Any:
    from rocketmq import Message

    message = Message()
    message.topic = topic
    message.body = body
    return message


def _take(joined: _Joined, receives: int, took: Callable[[list[bytes]], None], meter: Meter) -> int:
    """Receive with `receives` calls on their way, ack everything; how many messages.

    With one call on its way this is the plain loop of an application: receive, then ack each.
    """
    consumer, asked, messages = joined.consumer, joined.asked, joined.first
    asked.extend(consumer.receive_async(_RECEIVE, _INVISIBLE_SECONDS) for _ in range(receives))
    done = 0
    with ThreadPoolExecutor(_ACKERS if receives > 1 else 1) as ackers:
        acks: deque[Future[Any]] = deque()
        while True:
            took([message.body for message in messages])
            done += len(messages)
            acks.extend(ackers.submit(consumer.ack, message) for message in messages)
            while len(acks) > _WINDOW or (acks and receives == 1):
                acks.popleft().result()
            if not meter.room(done):
                break
            messages = asked.popleft().result()
            asked.append(consumer.receive_async(_RECEIVE, _INVISIBLE_SECONDS))
        while acks:
            acks.popleft().result()
    return done


def _leave(joined: _Joined) -> None:
    """Ack what is still on its way, lest it be invisible to whoever comes next; shut down."""
    for future in joined.asked:
        for message in future.result():
            joined.consumer.ack(message)
    joined.consumer.shutdown()


class RocketPeer:
    """A name server, and a broker with its proxy."""

    limits = Limits(fan_out_each=300, warm_up=8_000)

    def __init__(self, *, sync: bool) -> None:
        self.name = "rocketmq sync" if sync else "rocketmq"
        self.durability = (
            "SYNC_FLUSH, 1 replica: fsync before the answer, grouped"
            if sync
            else "ASYNC_FLUSH, 1 replica: no fsync before the answer (RocketMQ's default)"
        )
        self._flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
        self._processes: list[ServerProcess] = []
        self._port = 0
        self._home = ""

    def available(self) -> str | None:
        try:
            version("rocketmq-python-client")
        except ImportError:
            return "rocketmq-python-client is not installed"
        return ROCKETMQ.missing()

    def version(self) -> str:
        client = version("rocketmq-python-client")
        return f"RocketMQ {ROCKETMQ.version} (broker and proxy), rocketmq-python-client {client}"

    def start(self, directory: Path) -> None:
        names, broker, replication, remoting, self._port = free_ports(5)
        self._home = str(directory)
        _lay_out(directory / "store" / "config")
        (directory / "namesrv.conf").write_text(f"listenPort={names}\nbindAddress=127.0.0.1\n")
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "peer",
            "brokerId": "0",
            "namesrvAddr": f"127.0.0.1:{names}",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(broker),
            "haListenPort": str(replication),
            "storePathRootDir": str(directory / "store"),
            "storePathCommitLog": str(directory / "store" / "commitlog"),
            "flushDiskType": self._flush,
            "registerNameServerPeriod": "10000",  # the first word may come before it listens
        }
        config = directory / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        proxy = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "LOCAL",
            "namesrvAddr": f"127.0.0.1:{names}",
            "grpcServerPort": self._port,
            "remotingListenPort": remoting,
        }
        (directory / "proxy.json").write_text(json.dumps(proxy))
        self._launch(
            directory,
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            "-c",
            "namesrv.conf",
            heap="256m",
        ).wait_until(lambda: port_answers(names), 30)
        self._launch(
            directory,
            "org.apache.rocketmq.proxy.ProxyStartup",
            "-pm",
            "local",
            "-bc",
            str(config),
            "-pc",
            "proxy.json",
            heap="1g",
        ).wait_until(lambda: port_answers(self._port) and port_answers(broker), 60)
        # In a process of its own: the client moves its home directory and leaves threads behind.
        asking = multiprocessing.get_context("spawn").Process(
            target=_wait_for_route, args=(self._port, self._home), daemon=True
        )
        asking.start()
        asking.join(_ROUTE_SECONDS + 10)
        if asking.exitcode != 0:
            asking.kill()
            raise PeerFailed(f"no route to its topics in {_ROUTE_SECONDS:.0f} s")

    def _launch(
        self, directory: Path, main_class: str, *arguments: str, heap: str
    ) -> ServerProcess:
        options = (
            f"-Xms{heap}",
            f"-Xmx{heap}",
            f"-Duser.home={directory}",
            f"-Drocketmq.home.dir={directory}",
            "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        )
        command = ROCKETMQ.command(main_class, *arguments, options=options)
        process = ServerProcess(command, directory)
        self._processes.append(process)
        return process

    def stop(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    @property
    def port(self) -> int:
        """Where its proxy listens."""
        return self._port

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def client(self) -> ClientRecipe:
        return partial(RocketClient, self._port, self._home)


def _wait_for_route(port: int, home: str) -> None:
    RocketClient(port, home).wait_for_route(next(iter(TOPICS)))


def _lay_out(config: Path) -> None:
    """Topics, groups and first offsets, in the files that a broker reads when it starts."""
    config.mkdir(parents=True)
    groups = [
        (topic, f"{topic}-g{index}") for topic, count in TOPICS.items() for index in range(count)
    ]
    topics = {
        topic: {
            "topicName": topic,
            "readQueueNums": _QUEUES,
            "writeQueueNums": _QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        }
        for topic in TOPICS
    }
    zeros = {str(queue): 0 for queue in range(_QUEUES)}
    files: dict[str, dict[str, Any]] = {
        "topics.json": {"topicConfigTable": topics},
        "subscriptionGroup.json": {
            "subscriptionGroupTable": {group: {"groupName": group} for _, group in groups}
        },
        "consumerOffset.json": {
            "offsetTable": {f"{topic}@{group}": zeros for topic, group in groups}
        },
    }
    for name, content in files.items():
        content["dataVersion"] = {"counter": 1, "stateVersion": 0, "timestamp": 0}
        (config / name).write_text(json.dumps(content))


def variants() -> list[RocketPeer]:
    """The settings measured side by side."""
    return [RocketPeer(sync=False), RocketPeer(sync=True)]
