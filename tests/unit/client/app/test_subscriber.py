"""What a decorator may ask for."""

import pytest

import ternmq
from ternmq.core.errors import BadRequest


def test_options_that_do_not_go_together_are_refused() -> None:
    app = ternmq.App("tern://127.0.0.1:7700")

    async def waits(message: ternmq.Message) -> None: ...

    def plain(message: ternmq.Message) -> None: ...

    with pytest.raises(BadRequest, match="batch_size and batch_wait are for batch=True"):
        app.subscriber("orders", group="billing", batch_size=3)
    with pytest.raises(BadRequest, match="pool is 'processes'"):
        app.subscriber("orders", group="billing", pool="processes")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="a coroutine runs as a task"):
        app.subscriber("orders", group="billing", pool="threads")(waits)
    with pytest.raises(BadRequest, match="cannot be timed out"):
        app.subscriber("orders", group="billing", pool="tasks", timeout=1)(plain)
    with pytest.raises(BadRequest, match="auto_ack is 'no'"):
        app.subscriber("orders", group="billing", auto_ack="no")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="drain_timeout is -1"):
        ternmq.App("tern://127.0.0.1:7700", drain_timeout=-1)
