"""Half messages of RocketMQ producers: transactions of one row, ended by their id alone.

The id that a client gets names the broker group and the transaction, so any gateway can end it.
When a broker asks what became of one, a producer of its topic that has a stream here is asked, the
one that sent it first; its answer comes as a call of its own. The question needs the whole message,
which a broker does not tell: the gateway that took it keeps it for that, up to a limit. Without the
message, or without a producer, nobody is asked, and the broker asks again later.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ternmq.batch.half import ID_SIZE, HalfInfo
from ternmq.client.client import Client
from ternmq.client.transactions.checker import TransactionCheck, Verdict
from ternmq.client.transactions.half_sender import HalfSender, HalfTarget
from ternmq.core.clock import Clock
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.enums import MD5, Encoded
from ternmq.gateway.protocol.incoming_message import IncomingMessage
from ternmq.gateway.protocol.messages import RocketMessage, TelemetryCommand
from ternmq.gateway.sessions.clients import RocketClient
from ternmq.wire.messages.transactions import HalfEnd, HalfEnded
from ternmq.wire.numbers import Command

CHECKS_MAX = 1_000
RECOVERY_MS_MAX = 30 * 24 * 3600 * 1000
KEPT_MAX = 50_000
KEPT_SIZE_MAX = 64 * MIB
"""Of open half messages, for questions; the oldest are let go first."""
_ID = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9._-]{1,127})", re.ASCII)

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHalf:
    """One that has not ended, as far as this gateway knows."""

    topic: str
    client_id: str
    """Who sent it."""
    transaction_id: str
    written: bytes
    """The message as it was sent."""


class HalfMessages:
    """Stages half messages, ends them, and lets producers be asked about them."""

    def __init__(
        self, mq: Client, clock: Clock, producers_of: Callable[[str], list[RocketClient]]
    ) -> None:
        self._mq = mq
        self._clock = clock
        self._producers_of = producers_of
        self._open: dict[str, OpenHalf] = {}
        self._size = 0

    def _sender(self) -> HalfSender:
        return HalfSender(self._mq.cluster, self._mq.config, self._clock)

    async def stage(
        self, topic: str, incoming: IncomingMessage, client_id: str, message: Any
    ) -> str:
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
        name = info.transaction.hex()
        half = OpenHalf(
            topic=topic,
            client_id=client_id,
            transaction_id=f"{name}.{next(reversed(touched))}",
            written=message.SerializeToString(),
        )
        self._keep(name, half)
        return half.transaction_id

    def _keep(self, name: str, half: OpenHalf) -> None:
        self._forget(name)
        self._open[name] = half
        self._size += len(half.written)
        while len(self._open) > KEPT_MAX or self._size > KEPT_SIZE_MAX:
            self._forget(next(iter(self._open)))

    def _forget(self, name: str) -> None:
        half = self._open.pop(name, None)
        if half is not None:
            self._size -= len(half.written)

    async def end(self, transaction_id: str, *, commit: bool) -> None:
        """Make it visible, or forget it; saying the same again is fine."""
        read = _ID.fullmatch(transaction_id)
        if read is None:
            raise Refused(Code.INVALID_TRANSACTION_ID, "this is no transaction of this gateway")
        end = HalfEnd(transaction=bytes.fromhex(read[1]), action="commit" if commit else "rollback")
        sender = self._sender()
        await sender.known(read[2])
        await sender.ask(read[2], Command.HALF_END, end, HalfEnded)
        self._forget(read[1])

    async def asked(self, check: TransactionCheck) -> Verdict:
        """A broker asks: pass the question on. Its answer ends the transaction by itself."""
        half = self._open.get(check.id)
        if half is None:
            return Verdict.UNKNOWN
        producers = self._producers_of(half.topic)
        producers.sort(key=lambda client: client.client_id != half.client_id)
        question = _question(half)
        for client in producers:
            if client.tell(question):
                break
        else:
            log.info("no producer can be asked about a half message", topic=half.topic)
        return Verdict.UNKNOWN


def _question(half: OpenHalf) -> Any:
    command = TelemetryCommand()
    recover = command.recover_orphaned_transaction_command
    recover.transaction_id = half.transaction_id
    recover.message.CopyFrom(RocketMessage.FromString(half.written))
    system = recover.message.system_properties
    if not system.body_encoding:
        system.body_encoding = Encoded.IDENTITY
    system.body_digest.type = MD5
    digest = hashlib.md5(recover.message.body, usedforsecurity=False)
    system.body_digest.checksum = digest.hexdigest().upper()
    return command
