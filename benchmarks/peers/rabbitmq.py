"""RabbitMQ with durable queues, quorum and classic: the server, and pika as the client.

A topic is a fanout exchange, a group a queue bound to it, so 50 groups cost 50 copies. Messages are
persistent and confirmed; pika's callback connection keeps a window of unconfirmed ones (64 callers
are a window of 64: each confirm lets that caller send its next). The server runs on loopback with
its own node name, cookie and port mapper, and touches no RabbitMQ that may already be here.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, ClientRecipe, Limits, Pace
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import PeerFailed, ServerProcess, free_ports, port_answers

_WINDOW = 2_000
_PREFETCH = 1_000
_ACK_EVERY = 250
_TICK_SECONDS = 0.0005


class RabbitClient:
    """One connection and one channel for each call."""

    def __init__(self, port: int, queue_type: str) -> None:
        import pika  # type: ignore[import-untyped]

        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._queue_type = queue_type

    def prepare(self, topic: str, groups: list[str]) -> None:
        import pika

        connection = pika.BlockingConnection(self._parameters)
        channel = connection.channel()
        channel.exchange_declare(topic, "fanout", durable=True)
        for group in groups:
            queue = _queue(topic, group)
            arguments = {"x-queue-type": self._queue_type}
            channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_bind(queue, topic)
        connection.close()

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        self._publish_window(topic, _WINDOW, meter)

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        return self._publish_window(topic, callers, meter)

    def _publish_window(self, topic: str, window: int, meter: Meter) -> list[float]:
        """Keep `window` messages unconfirmed; how long each took to be confirmed."""
        body = b"x" * BODY_SIZE
        took: list[float] = []

        def work(channel: Any) -> None:
            confirms = _Confirms()

            def fill() -> None:
                while confirms.waiting < window and meter.room(confirms.sent):
                    channel.basic_publish(topic, "", body, self._persistent)
                    confirms.add()
                if not confirms.waiting:
                    meter.end(confirms.sent)
                    channel.connection.close()

            def confirmed(frame: Any) -> None:
                took.extend(confirms.take(frame))
                # Refilled in strides: one socket write for many messages.
                if confirms.waiting <= window // 2 or window <= 64:
                    fill()

            channel.confirm_delivery(confirmed)
            meter.begin()
            fill()

        self._run(work)
        return took

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        self._consume([_queue(topic, group)], 1 if one_by_one else _ACK_EVERY, meter)

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        self._consume([_queue(topic, group) for group in groups], _ACK_EVERY, meter)

    def _consume(self, queues: list[str], ack_every: int, meter: Meter) -> None:
        done = 0
        ended = False

        def work(channel: Any) -> None:
            def end() -> None:
                nonlocal ended
                if not ended:
                    ended = True
                    meter.end(done)
                    channel.connection.close()

            def take(_: Any, method: Any, __: Any, body: bytes) -> None:
                nonlocal done
                if ended:
                    return
                done += 1
                if ack_every == 1:
                    channel.basic_ack(method.delivery_tag)
                elif done % ack_every == 0 or done == meter.count:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if done == meter.count:
                    end()

            def start(_: Any) -> None:
                meter.begin()
                channel.connection.ioloop.call_later(meter.seconds, end)
                for queue in queues:
                    channel.basic_consume(queue, take)

            channel.basic_qos(prefetch_count=_PREFETCH, callback=start)

        self._run(work)

    def publish_paced(self, topic: str, pace: Pace) -> int:
        confirms = _Confirms()

        def work(channel: Any) -> None:
            batches = due_batches(pace.rate, pace.count, BODY_SIZE)
            finished = False

            def confirmed(frame: Any) -> None:
                confirms.take(frame)
                if finished:
                    close_when_confirmed()

            def close_when_confirmed() -> None:
                if not confirms.waiting:
                    channel.connection.close()

            def tick() -> None:
                nonlocal finished
                bodies = next(batches, None)
                if bodies is None:
                    finished = True
                    close_when_confirmed()
                    return
                for body in bodies:
                    channel.basic_publish(topic, "", body, self._persistent)
                    confirms.add()
                channel.connection.ioloop.call_later(_TICK_SECONDS, tick)

            channel.confirm_delivery(confirmed)
            tick()

        self._run(work)
        return confirms.sent

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        ages: list[int] = []

        def work(channel: Any) -> None:
            def take(_: Any, method: Any, __: Any, body: bytes) -> None:
                ages.append(age_ns(body))
                if len(ages) % _ACK_EVERY == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if len(ages) == meter.count:
                    channel.connection.close()

            def close() -> None:
                if channel.is_open:
                    channel.connection.close()

            def start(_: Any) -> None:
                ready()
                meter.begin()
                channel.connection.ioloop.call_later(meter.seconds, close)

            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(_queue(topic, group), take, callback=start)

        self._run(work)
        return ages

    def close(self) -> None:
        """Connections live in the calls that need them."""

    def _run(self, work: Callable[[Any], None]) -> None:
        """Run pika's loop with `work(channel)` until the connection closes."""
        import pika

        failed: list[BaseException] = []

        def opened(connection: Any) -> None:
            connection.channel(on_open_callback=work)

        def closed(connection: Any, reason: BaseException) -> None:
            if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):
                failed.append(reason)
            connection.ioloop.stop()

        connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=opened,
            on_open_error_callback=closed,
            on_close_callback=closed,
        )
        connection.ioloop.start()
        if failed:
            raise PeerFailed(str(failed[0]))


class _Confirms:
    """Publisher confirms: which delivery tags wait, and since when."""

    def __init__(self) -> None:
        self.sent = 0
        self._since: dict[int, float] = {}

    @property
    def waiting(self) -> int:
        return len(self._since)

    def add(self) -> None:
        self.sent += 1
        self._since[self.sent] = time.perf_counter()

    def take(self, frame: Any) -> list[float]:
        """How long the messages that this frame confirms took."""
        method = frame.method
        if type(method).__name__ != "Ack":
            raise PeerFailed(f"the broker refused message {method.delivery_tag}")
        now = time.perf_counter()
        if not method.multiple:
            return [now - self._since.pop(method.delivery_tag)]
        tags = []
        for tag in self._since:  # in the order they were sent
            if tag > method.delivery_tag:
                break
            tags.append(tag)
        return [now - self._since.pop(tag) for tag in tags]


def _queue(topic: str, group: str) -> str:
    return f"{topic}.{group}"


class RabbitPeer:
    """rabbitmq-server with queues of one type."""

    limits = Limits(fan_out_each=1_000)

    def __init__(self, *, queue_type: str) -> None:
        self.name = f"rabbitmq {queue_type}"
        self.durability = (
            "quorum queue of 1, persistent: fsync of the queue's log before the confirm"
            if queue_type == "quorum"
            else "classic durable queue, persistent: fsync before the confirm, grouped"
        )
        self._queue_type = queue_type
        self._processes: list[ServerProcess] = []
        self._port = 0

    def available(self) -> str | None:
        try:
            import pika  # noqa: F401
        except ImportError:
            return "pika is not installed"
        if _script() is None or shutil.which("epmd") is None:
            return "rabbitmq-server is not installed"
        return None

    def version(self) -> str:
        import pika

        server = _dpkg("--status", "rabbitmq-server")
        found = [line.partition(": ")[2] for line in server if line.startswith("Version: ")]
        return f"rabbitmq-server {found[0] if found else '?'}, pika {pika.__version__}"

    def start(self, directory: Path) -> None:
        self._port, mapper, distribution = free_ports(3)
        shared = {"ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        epmd = ServerProcess(["epmd", "-port", str(mapper)], directory / "epmd", shared)
        self._processes.append(epmd)
        epmd.wait_until(lambda: port_answers(mapper), 5)
        (directory / "plugins").write_text("[].\n")
        (directory / "rabbitmq.conf").write_text("vm_memory_high_watermark.relative = 0.3\n")
        env = {
            **shared,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"peer{self._port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} -setcookie peers"
            ),
        }
        script = _script()
        assert script is not None, "available() was asked first"
        server = ServerProcess([script], directory / "server", env)
        self._processes.append(server)
        server.wait_until(self._answers, 60)

    def _answers(self) -> bool:
        """Whether a client gets in: the port opens a little before the server takes log-ins."""
        import pika

        if not port_answers(self._port):
            return False
        try:
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port)).close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def stop(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def client(self) -> ClientRecipe:
        return partial(RabbitClient, self._port, self._queue_type)


def _script() -> str | None:
    """The server's own start script: the wrapper on the path insists on a user of its own."""
    listed = [line for line in _dpkg("--listfiles", "rabbitmq-server") if "/lib/" in line]
    return next((line for line in listed if line.endswith("/sbin/rabbitmq-server")), None)


def _dpkg(*arguments: str) -> list[str]:
    try:
        answer = subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True)
    except OSError:
        return []
    return answer.stdout.splitlines()


def variants() -> list[RabbitPeer]:
    """The settings measured side by side."""
    return [RabbitPeer(queue_type="quorum"), RabbitPeer(queue_type="classic")]
