"""The blocking facade against the fake broker, which runs on a thread of its own."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator

import pytest

import ternmq
from ternmq import sync
from ternmq.core.errors import BadRequest, BufferFull, Closed, Unavailable
from ternmq.sync.loop_thread import LoopThread, loop_thread
from tests.unit.client.fake_broker import FakeBroker, fake_broker

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Runs on a loop thread of its own, so that it lives while the test blocks."""
    thread = LoopThread()
    serving = fake_broker()
    yield thread.run(serving.__aenter__())
    thread.run(serving.__aexit__(None, None, None))
    thread.loop.call_soon_threadsafe(thread.loop.stop)


@pytest.fixture
def mq(broker: FakeBroker) -> Iterator[sync.Client]:
    with sync.connect(broker.url, app="shop") as client:
        yield client


def in_child(work: Callable[[], None]) -> int:
    """Fork, run `work` in the child, return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_sending_and_consuming_without_await(mq: sync.Client) -> None:
    receipt = mq.send("orders", b"first", key="k")
    batch = mq.send_many("orders", [b"second", b"third"])
    assert (receipt.sequence, batch[1].sequence) == (0, 2)

    with mq.consumer("orders", group="billing") as consumer:
        messages = [next(consumer) for _ in range(3)]
        for message in messages:
            message.ack()
        consumer.flush()

    assert [message.body for message in messages] == [b"first", b"second", b"third"]
    assert messages[0].key == "k"
    assert (consumer.group, consumer.topics) == ("billing", ["orders"])


def test_batches_and_acks(broker: FakeBroker, mq: sync.Client) -> None:
    mq.send_many("orders", [b"x"] * 100)
    with mq.consumer("orders", group="billing") as consumer:
        for batch in consumer.batches():
            batch.ack()
            assert len(batch) == 100
            break

    assert [(done.first, done.end) for done in broker.done] == [(0, 100)]


def test_acks_one_by_one_are_sent_in_ranges(broker: FakeBroker, mq: sync.Client) -> None:
    mq.send_many("orders", [b"x"] * 500)
    with mq.consumer("orders", group="billing") as consumer:
        for message in consumer:
            message.ack()
            if message.sequence == 499:
                break

    assert sum(done.end - done.first for done in broker.done) == 500
    assert len(broker.done) < 50


def test_one_way_messages(broker: FakeBroker, mq: sync.Client) -> None:
    for at in range(100):
        mq.send_nowait("log", b"%d" % at)
    mq.flush()

    assert mq.stats().sent == 100
    assert [message.body for message in mq.read("log")] == [b"%d" % at for at in range(100)]


def test_closing_sends_one_way_messages(broker: FakeBroker) -> None:
    with sync.connect(broker.url) as mq:
        mq.send_nowait("log", b"last words")

    assert len(broker.published) == 1
    with pytest.raises(Closed):
        mq.send("log", b"too late")


def test_a_full_buffer_is_told_at_once(broker: FakeBroker) -> None:
    broker.behave(40, lambda peer, frame: True)
    with sync.connect(broker.url, buffer_messages_max=3, delivery_timeout=0.3) as mq:
        for _ in range(3):
            mq.send_nowait("log", b"x")
        with pytest.raises(BufferFull):
            mq.send_nowait("log", b"x")


def test_errors_come_through(mq: sync.Client) -> None:
    with pytest.raises(ternmq.BadName):
        mq.send("or ders", b"")
    with pytest.raises(ternmq.BadName):
        mq.send_nowait("or ders", b"")
    with pytest.raises(BadRequest):
        mq.consumer("orders", group="billing", prefetch=0)
    with pytest.raises(Unavailable):
        sync.connect("tern://127.0.0.1:1")


def test_threads_share_a_client(broker: FakeBroker, mq: sync.Client) -> None:
    def send() -> None:
        for _ in range(50):
            mq.send("orders", b"x")

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert mq.stats().sent == 400
    assert len(broker.published) < 400  # They shared requests.


def test_the_admin_calls_block(mq: sync.Client) -> None:
    mq.send("orders", b"x")

    assert [topic.name for topic in mq.admin.topics()] == ["orders"]
    assert mq.admin.topic("orders").id == 1
    assert [route.broker_group for route in mq.admin.routes()] == ["main"]
    assert mq.admin.seek("orders", ternmq.Start(at="latest")).end == 1


def test_blocking_inside_the_loop_thread_is_refused(mq: sync.Client) -> None:
    async def block() -> None:
        mq.send("orders", b"x")

    with pytest.raises(BadRequest, match="would wait for itself"):
        loop_thread().run(block())


def test_a_forked_child_goes_on_with_its_own(broker: FakeBroker, mq: sync.Client) -> None:
    mq.send("orders", b"parent")
    mq.send_nowait("orders", b"parent")
    mq.flush()

    def child() -> None:
        mq.send("orders", b"child")
        mq.send_nowait("orders", b"child")
        mq.flush()
        mq.close()

    assert in_child(child) == 0
    mq.send("orders", b"parent")

    assert len({hello.session for hello in broker.hellos}) == 2
    assert [message.body for message in mq.read("orders")].count(b"child") == 2


def _send_in_pool(url: str) -> list[str]:
    with sync.connect(url) as mq:
        return [mq.send("orders", b"x").id for _ in range(10)]


def test_a_prefork_pool_makes_no_id_twice(broker: FakeBroker, mq: sync.Client) -> None:
    mq.send("orders", b"before")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        ids = [each for result in pool.map(_send_in_pool, [broker.url] * 6) for each in result]

    assert len(set(ids)) == 60
