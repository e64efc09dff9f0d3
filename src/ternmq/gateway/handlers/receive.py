"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

A poll is a stream: how it went, the messages, the time. A client that goes while its messages are
on their way has lost nothing: what was not written yet goes back at once, as it was. A refusal is
held back for a second: some clients ask again at once.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ternmq.client.consuming.detached_consumer import DetachedMessage, HandleVerdict
from ternmq.client.consuming.lease_handle import read_handle
from ternmq.core.errors import BadRequest, TernError
from ternmq.gateway.handlers.context import GatewayContext, put_status, put_whole_status
from ternmq.gateway.handlers.delivered_message import make_delivered, put_delivery
from ternmq.gateway.handlers.filters import read_filter
from ternmq.gateway.protocol.codes import Code, Refused, code_of
from ternmq.gateway.protocol.messages import (
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardResponse,
    ReceiveMessageResponse,
)
from ternmq.gateway.protocol.spans import put_ms, span_ms
from ternmq.gateway.sessions.callers import RocketCaller
from ternmq.gateway.sessions.group_consumers import Interest, Poll
from ternmq.rpc.http2.calls import RemoteCall

BATCH_MAX = 1_000
INVISIBLE_MS_MIN = 10_000
INVISIBLE_MS_MAX = 12 * 3600 * 1000
PUSH_INVISIBLE_MS = 60_000
POLL_S = 20.0
"""Where a client does not say."""
POLL_S_MAX = 30.0
BEFORE_DEADLINE_S = 0.5
REFUSAL_HELD_S = 1.0
ENTRIES_MAX = 1_024
ATTEMPT_SIZE_MAX = 128
PUSHED, SIMPLE = "p", "s"
"""What a receipt begins with: whose it is."""
OVER = "this receipt is over: its message was settled, or comes again"
NACKED = "its RocketMQ consumer did not handle it"
FORWARDED = "its RocketMQ consumer gave it up after the last attempt"


class ReceiveCalls:
    """Hands messages out, and takes back what became of them."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway

    async def receive_message(
        self, caller: RocketCaller, request: Any, call: RemoteCall
    ) -> AsyncGenerator[Any, None]:
        began = asyncio.get_running_loop().time()
        try:
            interest, poll = await self._wanted(caller, request, call)
            found = await self._gateway.consumers.poll(interest, poll)
        except (Refused, TernError) as error:
            code = error.code if isinstance(error, Refused) else code_of(error)
            rest = began + REFUSAL_HELD_S - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, rest))
            yield _status(code, error.message)
            return
        if not found:
            yield _status(Code.MESSAGE_NOT_FOUND, "nothing came in time")
            return
        sent = 0
        try:
            yield _status(Code.OK)
            for each in found:
                yield _message(each, request.message_queue.topic, poll)
                sent += 1
        finally:
            if sent < len(found):
                await asyncio.shield(
                    self._gateway.consumers.give_back(caller.client_id, interest, found[sent:])
                )
        yield self._time()

    async def _wanted(
        self, caller: RocketCaller, request: Any, call: RemoteCall
    ) -> tuple[Interest, Poll]:
        gateway = self._gateway
        topic = gateway.names.topic(request.message_queue.topic, caller.namespace)
        group = gateway.names.group(request.group, caller.namespace)
        tag, text = read_filter(request.filter_expression)
        push = bool(request.auto_renew)
        invisible_ms = PUSH_INVISIBLE_MS
        if not push:
            invisible_ms = _invisible(request.invisible_duration)
        poll = Poll(
            client_id=caller.client_id,
            rows=max(1, min(BATCH_MAX, request.batch_size)),
            wait_s=_wait(request, call),
            invisible_s=invisible_ms / 1000,
            push=push,
            attempt=request.attempt_id[:ATTEMPT_SIZE_MAX],
        )
        await gateway.known.check_topic(topic)
        policy = await gateway.known.policy(topic, group)
        interest = Interest(topic=topic, group=group, tag=tag, filter=text, ordered=policy.fifo)
        return interest, poll

    def _time(self) -> Any:
        answer = ReceiveMessageResponse()
        put_ms(answer.delivery_timestamp, self._gateway.clock.now_ms())
        return answer

    async def ack_message(self, caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        place = self._place(caller, request)
        if not 0 < len(request.entries) <= ENTRIES_MAX:
            raise Refused(
                Code.BAD_REQUEST, f"{len(request.entries)} receipts; it can be 1 to {ENTRIES_MAX}"
            )
        answer = AckMessageResponse()
        acks = [self._ack(caller, place, entry, answer.entries.add()) for entry in request.entries]
        if len(acks) == 1:  # As all clients do; a task more for it would cost a tenth.
            await acks[0]
        else:
            await asyncio.gather(*acks)
        put_whole_status(answer)
        return answer

    async def _ack(
        self, caller: RocketCaller, place: tuple[str, str], entry: Any, result: Any
    ) -> None:
        result.message_id, result.receipt_handle = entry.message_id, entry.receipt_handle
        try:
            verdict = HandleVerdict(handle=_handle(entry.receipt_handle)[1])
            await self._gateway.consumers.settle(caller.client_id, *place, verdict)
            put_status(result.status, Code.OK)
        except Refused as refused:
            put_status(result.status, refused.code, refused.message)
        except TernError as error:
            put_status(result.status, code_of(error), error.message)

    async def change_invisible_duration(
        self, caller: RocketCaller, request: Any, _call: RemoteCall
    ) -> Any:
        """Of a simple consumer: its time begins again. Of a push consumer: it has failed, and
        comes again when the policy of its group says."""
        answer = ChangeInvisibleDurationResponse()
        answer.receipt_handle = request.receipt_handle
        consumers = self._gateway.consumers
        try:
            place = self._place(caller, request)
            push, handle = _handle(request.receipt_handle)
            if push:
                failed = HandleVerdict(handle=handle, outcome="retry", reason=NACKED)
                await consumers.settle(caller.client_id, *place, failed)
            else:
                seconds = _invisible(request.invisible_duration) / 1000
                if not await consumers.extend(*place, handle, seconds):
                    raise Refused(Code.INVALID_RECEIPT_HANDLE, OVER)
        except Refused as refused:
            put_status(answer.status, refused.code, refused.message)
        except TernError as error:
            put_status(answer.status, code_of(error), error.message)
        else:
            put_status(answer.status, Code.OK)
        return answer

    async def forward_to_dead_letters(
        self, caller: RocketCaller, request: Any, _call: RemoteCall
    ) -> Any:
        place = self._place(caller, request)
        handle = _handle(request.receipt_handle)[1]
        given_up = HandleVerdict(handle=handle, outcome="reject", reason=FORWARDED)
        await self._gateway.consumers.settle(caller.client_id, *place, given_up)
        answer = ForwardResponse()
        put_status(answer.status, Code.OK)
        return answer

    def _place(self, caller: RocketCaller, request: Any) -> tuple[str, str]:
        names = self._gateway.names
        topic = names.topic(request.topic, caller.namespace)
        return topic, names.group(request.group, caller.namespace)


def _wait(request: Any, call: RemoteCall) -> float:
    wait = POLL_S
    if request.HasField("long_polling_timeout"):
        wait = span_ms(request.long_polling_timeout) / 1000
    if call.deadline is not None:
        left = call.deadline - asyncio.get_running_loop().time()
        wait = min(wait, left - BEFORE_DEADLINE_S)
    return max(0.0, min(wait, POLL_S_MAX))


def _invisible(duration: Any) -> int:
    wanted = span_ms(duration)
    if not INVISIBLE_MS_MIN <= wanted <= INVISIBLE_MS_MAX:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is {wanted} ms; it can be {INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX}",
        )
    return wanted


def _status(code: Code, message: str = "") -> Any:
    answer = ReceiveMessageResponse()
    put_status(answer.status, code, message)
    return answer


def _message(each: DetachedMessage, asked: Any, poll: Poll) -> Any:
    answer = ReceiveMessageResponse()
    made = make_delivered(each.message, asked)
    receipt = f"{PUSHED if poll.push else SIMPLE}{each.handle}"
    put_delivery(made, each.message, receipt, int(poll.invisible_s * 1000))
    answer.message.CopyFrom(made)
    return answer


def _handle(receipt: str) -> tuple[bool, str]:
    """Whether a push consumer has it, and the handle in it."""
    try:
        read_handle(receipt[1:])
    except BadRequest:
        raise Refused(Code.INVALID_RECEIPT_HANDLE, "this is no receipt of a gateway") from None
    return receipt[0] == PUSHED, receipt[1:]
