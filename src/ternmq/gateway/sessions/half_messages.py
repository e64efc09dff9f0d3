"""Half messages of RocketMQ producers: transactions of one row, ended by their id alone.

The id that a client gets names the broker group and the transaction, so any gateway can end it.
When a broker asks what became of one, a producer of its topic that has a stream here is asked; its
answer comes as a call of its own. Without such a producer nobody is asked.
"""

import hashlib
import re

from ternmq.batch.half import ID_SIZE, HalfInfo
from ternmq.client.client import Client
from ternmq.client.transactions.half_sender import HalfSender, HalfTarget
from ternmq.core.clock import Clock
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.incoming import IncomingMessage
from ternmq.wire.messages.transactions import HalfEnd, HalfEnded
from ternmq.wire.numbers import Command

CHECKS_MAX = 1_000
RECOVERY_MS_MAX = 30 * 24 * 3600 * 1000
_ID = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9._-]{1,127})", re.ASCII)


class HalfMessages:
    """Stages half messages and ends them."""

    def __init__(self, mq: Client, clock: Clock) -> None:
        self._mq = mq
        self._clock = clock

    def _sender(self) -> HalfSender:
        return HalfSender(self._mq.cluster, self._mq.config, self._clock)

    async def stage(self, topic: str, incoming: IncomingMessage) -> str:
        """Store one that nobody sees; returns the id that ends it."""
        sender = self._sender()
        assert incoming.row.explicit_id is not None
        digest = hashlib.sha256(topic.encode() + b"\0" + incoming.row.explicit_id).digest()
        info = HalfInfo(
            transaction=digest[:ID_SIZE],
            first_check_ms=min(incoming.recovery_ms, RECOVERY_MS_MAX),
            checks_max=CHECKS_MAX,
        )
        group = await sender.group(None)
        rows = sender.rows([incoming.row], {})
        touched: dict[str, None] = {}
        await sender.spread(HalfTarget(group, topic, info), rows, touched)
        return f"{info.transaction.hex()}.{next(reversed(touched))}"

    async def end(self, transaction_id: str, *, commit: bool) -> None:
        """Make it visible, or forget it; saying the same again is fine."""
        read = _ID.fullmatch(transaction_id)
        if read is None:
            raise Refused(Code.INVALID_TRANSACTION_ID, "this is no transaction of this gateway")
        end = HalfEnd(transaction=bytes.fromhex(read[1]), action="commit" if commit else "rollback")
        sender = self._sender()
        await sender.known(read[2])
        await sender.ask(read[2], Command.HALF_END, end, HalfEnded)
