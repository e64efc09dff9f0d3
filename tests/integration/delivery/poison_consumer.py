"""A consumer whose handler ends the whole process at one message, as a process of its own:

python -m tests.integration.delivery.poison_consumer URL TOPIC GROUP
"""

import os
import sys

import ternmq

POISON = b"poison"


def main(url: str, topic: str, group: str) -> None:
    app = ternmq.App(url, app="poisoned")

    @app.subscriber(topic, group=group, concurrency=4)
    async def handle(message: ternmq.Message) -> None:
        if message.body == POISON:
            os._exit(1)  # No goodbye: nothing that was still to be told is told.

    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
