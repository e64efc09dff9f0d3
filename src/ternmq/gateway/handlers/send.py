"""SendMessage, RecallMessage, EndTransaction.

A request may hold several messages, and each has its own answer. A message that is for now is
stored under the id that its client gave it: a second try finds the first, however long ago it came,
on the broker group that the id (or the message group) always leads to.
"""

import base64
import binascii
import zlib
from typing import Any

from ternmq.batch.encoder import Outgoing
from ternmq.client.admin.delays import CancelResult
from ternmq.core.errors import TernError, Unavailable
from ternmq.gateway.handlers.context import GatewayContext, put_status, put_whole_status
from ternmq.gateway.protocol.codes import Code, Refused, code_of
from ternmq.gateway.protocol.enums import MessageKind, Resolution
from ternmq.gateway.protocol.incoming_message import IncomingMessage, read_incoming
from ternmq.gateway.protocol.message_ids import client_id_text
from ternmq.gateway.protocol.messages import (
    EndTransactionResponse,
    RecallMessageResponse,
    SendMessageResponse,
)
from ternmq.gateway.sessions.callers import RocketCaller
from ternmq.rpc.http2.calls import RemoteCall

MESSAGES_MAX = 1_024
"""In one request."""
HANDLE_SIZE_MAX = 512


class SendCalls:
    """Stores what clients send."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway

    async def send_message(self, caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        answer = SendMessageResponse()
        if not 0 < len(request.messages) <= MESSAGES_MAX:
            raise Refused(
                Code.BAD_REQUEST, f"{len(request.messages)} messages; it can be 1 to {MESSAGES_MAX}"
            )
        for message in request.messages:
            await self._store(caller, message, answer.entries.add())
        put_whole_status(answer)
        return answer

    async def _store(self, caller: RocketCaller, message: Any, entry: Any) -> None:
        """One message; what is wrong with it is said in its own entry."""
        entry.message_id = message.system_properties.message_id
        gateway = self._gateway
        try:
            topic = gateway.names.topic(message.topic, caller.namespace)
            now_ms = gateway.clock.now_ms()
            incoming = read_incoming(
                message, now_ms=now_ms, delay_ms_max=gateway.config.delay_ms_max
            )
            await gateway.known.check_topic(topic)
            gateway.clients.seen(caller).sends_to(topic)
            if incoming.kind is MessageKind.TRANSACTION:
                entry.transaction_id = await self._stage(caller, topic, incoming, message)
            elif incoming.row.due_at_ms is not None and incoming.row.due_at_ms > now_ms:
                entry.recall_handle = await self._delay(topic, incoming)
            else:
                incoming.row.due_at_ms = None
                entry.offset = await self._store_now(topic, incoming.row)
        except Refused as refused:
            put_status(entry.status, refused.code, refused.message)
        except TernError as error:
            put_status(entry.status, code_of(error), error.message)
        else:
            put_status(entry.status, Code.OK)

    async def _store_now(self, topic: str, row: Outgoing) -> int:
        receipt = await self._gateway.sends.send(topic, self._group_of(topic, row), row)
        return receipt.sequence

    def _group_of(self, topic: str, row: Outgoing) -> str:
        mq = self._gateway.mq
        if row.order_key is not None:
            owner = mq.slot_owner(topic, row.order_key)
            if owner is None:
                raise Unavailable("the slot of this message group is being moved: send it again")
            return owner
        groups = mq.taking_groups()
        if not groups:
            raise Unavailable("no broker group takes messages now: send it again")
        assert row.explicit_id is not None
        return sorted(groups)[zlib.crc32(row.explicit_id) % len(groups)]

    async def _delay(self, topic: str, incoming: IncomingMessage) -> str:
        row = incoming.row
        assert row.explicit_id is not None

        async def send() -> str:
            receipt = (await self._gateway.mq.send_many(topic, [row]))[0]
            return _handle(receipt.id_bytes)

        return await self._gateway.recent.once(topic, row.explicit_id, send)

    async def _stage(
        self, caller: RocketCaller, topic: str, incoming: IncomingMessage, message: Any
    ) -> str:
        assert incoming.row.explicit_id is not None

        async def stage() -> str:
            return await self._gateway.halves.stage(topic, incoming, caller.client_id, message)

        return await self._gateway.recent.once(topic, incoming.row.explicit_id, stage)

    async def recall_message(self, caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        self._gateway.names.topic(request.topic, caller.namespace)
        message_id = _handled_id(request.recall_handle)
        result = await self._gateway.mq.cancel(message_id)
        if result is not CancelResult.CANCELLED:
            raise Refused(
                Code.NOT_FOUND,
                "it is handed out already, or there is no such message: "
                f"{result.value.replace('_', ' ')}",
            )
        answer = RecallMessageResponse()
        answer.message_id = client_id_text(message_id.hex())
        put_status(answer.status, Code.OK)
        return answer

    async def end_transaction(self, _caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        answer = EndTransactionResponse()
        if request.resolution in (Resolution.COMMIT, Resolution.ROLLBACK):
            commit = request.resolution == Resolution.COMMIT
            await self._gateway.halves.end(request.transaction_id, commit=commit)
        put_status(answer.status, Code.OK)  # Else it does not know yet: it is asked again.
        return answer


def _handle(message_id: bytes) -> str:
    return base64.urlsafe_b64encode(message_id).decode()


def _handled_id(handle: str) -> bytes:
    try:
        if not 0 < len(handle) <= HANDLE_SIZE_MAX:
            raise ValueError
        return base64.b64decode(handle, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise Refused(Code.BAD_REQUEST, "this is not a recall handle of this gateway") from None
