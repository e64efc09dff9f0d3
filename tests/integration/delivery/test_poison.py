"""A message that kills its consumer, as real processes: it is found and dies alone (design 5)."""

import subprocess
import sys

import ternmq
from ternmq.wire.messages.groups import Start
from tests.integration.delivery.poison_consumer import POISON
from tests.integration.delivery.test_groups import line_of
from tests.integration.processes import Node, NodeFactory, clean_environment
from tests.waiting import until

TOPIC, GROUP = "work", "workers"
NEIGHBOURS = 200
ATTEMPTS = 3


def launch(node: Node) -> "subprocess.Popen[bytes]":
    arguments = [
        sys.executable,
        "-m",
        "tests.integration.delivery.poison_consumer",
        node.url,
        TOPIC,
        GROUP,
    ]
    return subprocess.Popen(arguments, env=clean_environment())


async def test_a_message_that_kills_its_consumer_dies_alone(node_factory: NodeFactory) -> None:
    """Q15, R13: `os._exit` in a handler, a consumer that is started again and again, and a node
    that is killed on the way: the culprit is a dead letter, all 200 neighbours are acked."""
    node = node_factory(environment={"TERN_SESSION_GRACE_MS": "200"})
    async with ternmq.connect(node.url) as mq:
        await mq.admin.create_group(TOPIC, GROUP, Start())
        await mq.admin.set_group(TOPIC, GROUP, retry="fixed:100ms", attempts_max=ATTEMPTS)
        bodies = [b"%d" % number for number in range(NEIGHBOURS)]
        bodies.insert(NEIGHBOURS // 2, POISON)
        assert not (await mq.send_many(TOPIC, bodies)).failures

        deaths = 0
        consumer = launch(node)

        async def dies() -> bool:
            """Starts the consumer again whenever the message has killed it."""
            nonlocal deaths, consumer
            if consumer.poll() is not None:
                assert consumer.returncode == 1
                deaths += 1
                if deaths == ATTEMPTS:
                    node.kill()
                    node.start()
                consumer = launch(node)
            return (await line_of(mq, TOPIC, GROUP)).dead > 0

        try:
            await until(dies, "a dead letter", seconds=60)
            await until(lambda: consumer.poll() is None, "somebody consumes")

            async def all_acked() -> bool:
                return (await line_of(mq, TOPIC, GROUP)).acked == NEIGHBOURS

            await until(all_acked, seconds=60)
            assert consumer.poll() is None, "without the culprit it lives"
        finally:
            consumer.kill()
            consumer.wait()

        line = await line_of(mq, TOPIC, GROUP)
        assert (line.dead, line.acked, line.total) == (1, NEIGHBOURS, NEIGHBOURS + 1)
        assert ATTEMPTS <= deaths <= 2 + ATTEMPTS + 1, "two together, three alone, one cut short"
        [letter] = [m async for m in mq.read(f"%dead.{GROUP}")]
        assert letter.body == POISON
        assert letter.properties["%attempt"] == ATTEMPTS
        assert "consumer died" in str(letter.properties["%reason"])
