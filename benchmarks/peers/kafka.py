"""Kafka as one KRaft node from its jars, and confluent-kafka (librdkafka) as the client.

One partition with one replica: the closest to one log. acks=all always; by default Kafka leaves
syncing to the kernel, with flush.messages=1 it syncs every appended batch before it answers.
Kafka has no ack of one message: a consumer commits a position, here after every thousand at most,
which keeps at-least-once without paying for a commit per message.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, ClientRecipe, Limits, Pace
from benchmarks.peers.java import KAFKA
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import PeerFailed, ServerProcess, free_ports

_BATCH = 1_000
_JOIN_SECONDS = 10.0


class KafkaClient:
    """Topics of one partition; a consumer group is a group and starts at the earliest."""

    def __init__(
        self, port: int, topic_config: dict[str, str], tls: dict[str, str] | None = None
    ) -> None:
        self._servers: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "log_level": 2,
            **(tls or {}),
        }
        self._topic_config = topic_config

    def prepare(self, topic: str, groups: list[str]) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        new = NewTopic(topic, num_partitions=1, replication_factor=1, config=self._topic_config)
        admin = AdminClient(self._servers)
        admin.create_topics([new])[topic].result(timeout=15)

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        failures: list[Any] = []
        producer = self._producer(
            {
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: failures.append(error),
            }
        )
        producer.list_topics(topic, timeout=10)
        messages = [{"value": b"x" * BODY_SIZE} for _ in range(_BATCH)]
        done = 0
        meter.begin()
        while meter.room(done):
            wanted = min(_BATCH, meter.count - done)
            if one_by_one:
                queued = _produce_each(producer, topic, wanted)
            else:
                queued = producer.produce_batch(topic, messages[:wanted])
            done += queued
            producer.poll(0 if queued == wanted else 0.01)
        left = producer.flush(30)
        meter.end(done)
        if left or failures:
            raise PeerFailed(f"{left} unconfirmed, {len(failures)} failed: {failures[:1]}")

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        producer = self._producer({"linger.ms": 0})
        producer.list_topics(topic, timeout=10)
        if callers > 1:
            return asyncio.run(_send_concurrently(producer, topic, callers, meter))
        body = b"x" * BODY_SIZE
        took: list[float] = []
        confirmed: list[Any] = []
        meter.begin()
        while meter.room(len(took)):
            began = time.perf_counter()
            producer.produce(topic, body, on_delivery=lambda error, _: confirmed.append(error))
            while not confirmed:
                producer.poll(1)
            if error := confirmed.pop():
                raise PeerFailed(str(error))
            took.append(time.perf_counter() - began)
        meter.end(len(took))
        return took

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        consumer = self._joined(topic, group)
        meter.begin()
        consumer.resume(consumer.assignment())
        done = _poll_each(consumer, meter) if one_by_one else _take_batches(consumer, meter)
        meter.end(done)
        consumer.close()

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        consumers = [self._joined(topic, group) for group in groups]
        each = meter.count // len(groups)
        done = [0] * len(groups)

        def drain(index: int, consumer: Any) -> None:
            consumer.resume(consumer.assignment())
            while done[index] < each and meter.room(done[index]):
                messages = consumer.consume(_BATCH, timeout=0.1)
                if messages:
                    done[index] += len(messages)
                    consumer.commit(asynchronous=True)

        with ThreadPoolExecutor(len(groups)) as threads:
            meter.begin()
            list(threads.map(drain, range(len(groups)), consumers))
            meter.end(sum(done))
        # Leaving 25 groups one by one takes seconds and is no part of the measurement: the
        # process ends here and the broker lets the members time out.

    def publish_paced(self, topic: str, pace: Pace) -> int:
        failures: list[Any] = []
        producer = self._producer({"linger.ms": 0, "delivery.report.only.error": True})
        producer.list_topics(topic, timeout=10)
        sent = 0
        for bodies in due_batches(pace.rate, pace.count, BODY_SIZE):
            for body in bodies:
                producer.produce(topic, body, on_delivery=lambda error, _: failures.append(error))
            sent += len(bodies)
            producer.poll(0)
            if not bodies:
                time.sleep(0.0005)
        unconfirmed: int = producer.flush(15)
        return sent - unconfirmed - len(failures)

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        consumer = self._joined(topic, group)
        consumer.resume(consumer.assignment())
        ages: list[int] = []
        ready()
        meter.begin()
        while meter.room(len(ages)):
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                ages.append(age_ns(message.value()))
                if len(ages) % _BATCH == 0:
                    consumer.commit(asynchronous=True)
        meter.end(len(ages))
        consumer.close()
        return ages

    def close(self) -> None:
        """Producers and consumers live in the calls that need them."""

    def _producer(self, config: dict[str, Any]) -> Any:
        from confluent_kafka import Producer

        return Producer({**self._servers, "acks": "all", **config})

    def _joined(self, topic: str, group: str) -> Any:
        """A consumer that has its partition but fetches nothing before it is resumed."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                **self._servers,
                "group.id": f"{topic}-{group}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # By default librdkafka pauses for a second whenever its queue is full.
                "fetch.queue.backoff.ms": 5,
            }
        )
        assigned: list[Any] = []

        def hold(member: Any, partitions: list[Any]) -> None:
            member.assign(partitions)
            member.pause(partitions)
            assigned.extend(partitions)

        consumer.subscribe([topic], on_assign=hold)
        deadline = time.monotonic() + _JOIN_SECONDS
        while not assigned:
            consumer.poll(0.1)
            if time.monotonic() > deadline:
                raise PeerFailed(f"group {group} got no partition in {_JOIN_SECONDS:.0f} s")
        return consumer


def _produce_each(producer: Any, topic: str, count: int) -> int:
    """One call for each message, confirms in the background; how many the queue took."""
    body = b"x" * BODY_SIZE
    for queued in range(count):
        try:
            producer.produce(topic, body)
        except BufferError:
            return queued
    return count


def _take_batches(consumer: Any, meter: Meter) -> int:
    done = 0
    while meter.room(done):
        messages = consumer.consume(min(_BATCH, meter.count - done), timeout=0.2)
        if messages:
            done += len(messages)
            consumer.commit(asynchronous=True)
    _commit_rest(consumer)
    return done


def _poll_each(consumer: Any, meter: Meter) -> int:
    done = 0
    while meter.room(done):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            message.value()
            done += 1
            if done % _BATCH == 0:
                consumer.commit(asynchronous=True)
    _commit_rest(consumer)
    return done


def _commit_rest(consumer: Any) -> None:
    """Wait until the position is stored, so that the last ack is inside the measured time."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing new since the last commit
            raise


async def _send_concurrently(producer: Any, topic: str, callers: int, meter: Meter) -> list[float]:
    """Coroutines wait for their own delivery reports; a thread polls those out of librdkafka."""
    loop = asyncio.get_running_loop()
    body = b"x" * BODY_SIZE
    took: list[float] = []
    reported: list[tuple[asyncio.Future[None], Any]] = []
    running = True

    def settle(reports: list[tuple[asyncio.Future[None], Any]]) -> None:
        for future, error in reports:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(PeerFailed(str(error)))

    def poll() -> None:
        nonlocal reported
        while running:
            producer.poll(0.05)
            if reported:
                reports, reported = reported, []
                loop.call_soon_threadsafe(settle, reports)

    async def caller() -> None:
        while meter.room(len(took)):
            began = time.perf_counter()
            future = loop.create_future()
            producer.produce(
                topic,
                body,
                on_delivery=lambda error, _, mine=future: reported.append((mine, error)),
            )
            await future
            took.append(time.perf_counter() - began)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    meter.begin()
    await asyncio.gather(*(caller() for _ in range(callers)))
    meter.end(len(took))
    running = False
    thread.join()
    return took


class KafkaPeer:
    """One node that is broker and controller."""

    limits = Limits(fan_out_each=20_000, warm_up=200_000, batch_publish=True)

    def __init__(self, *, fsync: bool, tls: bool = False) -> None:
        """`tls`: an `ssl` listener, TLS 1.3, certificates of both sides."""
        self.name = f"kafka{' fsync' if fsync else ''}{' tls' if tls else ''}"
        self._tls = tls
        self._client_tls: dict[str, str] = {}
        self.durability = (
            "acks=all, flush.messages=1: fsync of every batch before the answer"
            if fsync
            else "acks=all, 1 replica: no fsync before the answer (Kafka's default)"
        )
        self._topic_config = {"flush.messages": "1"} if fsync else {}
        self._process: ServerProcess | None = None
        self._port = 0

    def available(self) -> str | None:
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            return "confluent-kafka is not installed"
        return KAFKA.missing()

    def version(self) -> str:
        import confluent_kafka

        client = confluent_kafka.__version__
        return f"Kafka {KAFKA.version} (KRaft), confluent-kafka {client}"

    def start(self, directory: Path) -> None:
        self._port, controller = free_ports(2)
        config = directory / "server.properties"
        settings = _properties(directory / "data", self._port, controller)
        if self._tls:
            server_tls, self._client_tls = _tls_files(directory / "tls")
            listeners = f"SSL://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}"
            settings |= {"listeners": listeners, **server_tls}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ("format", f"--cluster-id={cluster}", "-c", str(config))
        made = subprocess.run(
            KAFKA.command("kafka.tools.StorageTool", *arguments), capture_output=True, text=True
        )
        if made.returncode:
            raise PeerFailed(f"format failed: {made.stderr.strip()[-400:]}")
        # The heap and collector of Kafka's own start script.
        options = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
        command = KAFKA.command("kafka.Kafka", str(config), options=options)
        self._process = ServerProcess(command, directory)
        self._process.wait_until(self._answers, 40)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        address = f"127.0.0.1:{self._port}"
        quiet: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0, **self._client_tls}
        try:
            return bool(AdminClient(quiet).list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process else []

    def client(self) -> ClientRecipe:
        return partial(KafkaClient, self._port, self._topic_config, self._client_tls)


def _tls_files(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A CA and a certificate for each side, of the kind that `tern secure` makes; settings of the
    broker, and of the client."""
    from cryptography.hazmat.primitives import serialization

    from ternmq.security.tls.authority import Authority, CertificateOrder

    authority = Authority.make(folder, "bench")
    server = authority.issue(CertificateOrder(name="broker", hosts=["127.0.0.1"]))
    client = authority.issue(CertificateOrder(name="client"))
    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    chain = folder / "broker-chain.pem"
    chain.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + server.certificate.read_bytes()
    )
    chain.chmod(0o600)
    return {
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.protocol": "TLSv1.3",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(chain),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }, {
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.key),
    }


def _properties(data: Path, port: int, controller: int) -> dict[str, str]:
    """One node, Kafka's defaults but for the replication factors a single node can have."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }


def variants() -> list[KafkaPeer]:
    """The settings measured side by side."""
    return [KafkaPeer(fsync=False), KafkaPeer(fsync=True)]
