"""Waits until a group has acked what was sent (D13).

The broker answers when it knows; a lost connection or a restarted broker is asked again, because
asking twice does no harm. Time-outs and refusals have in common that the message is stored: they
are one error, which says what is known and carries the receipt. A message that was sent for later
is looked for first (`delayed_confirm`).
"""

import asyncio
from typing import Any, NamedTuple

from ternmq.client.confirming.delayed_confirm import (
    CANCELLED,
    WAITING,
    Span,
    delayed_rows,
    place_of,
)
from ternmq.client.model.durations import seconds_of, typed
from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.model.times import shown
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.link import back_off
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, GroupNotFound, NotConfirmed, TernError, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.rpc.connection import request
from ternmq.wire.messages.publish import Confirm, Confirmed
from ternmq.wire.numbers import Command

WAIT_S = 10.0  # One request waits so long at the broker.
ANSWER_S = 2.0  # And the answer may take so much longer.
TIMEOUT_S = 30.0
TIMEOUT_MAX_S = 7 * 24 * 3600.0
ASKING_MAX = 64  # Requests of one call under way at once.
OPEN = "open"


class ConfirmRequest(NamedTuple):
    """Whose acks to wait for, and how long."""

    group: str
    timeout: float


def check_receipt(receipt: object) -> Receipt | BatchReceipt:
    """Of a call of `confirm`."""
    if isinstance(receipt, Receipt | BatchReceipt):
        return receipt
    raise BadRequest(
        f"confirm() takes what send or send_many returned, a receipt; it got {shown(receipt)}. "
        "Whether a message of some id was acked: 'tern find --id' shows its sequence"
    )


def make_confirm_request(group: object, timeout: object) -> ConfirmRequest:
    """Check `confirm_group` and `timeout`."""
    if not isinstance(group, str):
        raise BadRequest(f"confirm_group is {typed(group)}; it is the name of a group")
    seconds = seconds_of("timeout", TIMEOUT_S if timeout is None else timeout, 0, TIMEOUT_MAX_S)
    return ConfirmRequest(check_name("group", group), seconds)


def take_confirm_request(options: dict[str, Any]) -> ConfirmRequest | None:
    """Take the request for a confirmation out of the keywords of a send; None: there is none."""
    group, timeout = options.pop("confirm_group", None), options.pop("timeout", None)
    if group is not None:
        if options.get("delay") is not None or options.get("at") is not None:
            raise BadRequest("a delayed message is not consumed yet: leave confirm_group= out")
        return make_confirm_request(group, timeout)
    if timeout is not None:
        raise BadRequest("timeout= is for confirm_group=; sending has delivery_timeout= on connect")
    return None


def refuse_confirm(wanted: ConfirmRequest | None) -> None:
    """A call that does not even wait for the store cannot wait for a group."""
    if wanted is not None:
        raise BadRequest("confirm_group= waits for a group: leave it out, or wait for the store")


async def check_group(cluster: Cluster, topic: str, group: str) -> None:
    """Raise before anything is sent if the topic or the group is not there."""
    check_name("topic", topic)
    for broker_group in await cluster.some_masters():
        asked = Confirm(topic=topic, group=group)
        await cluster.ask(cluster.broker(broker_group), Command.CONFIRM, asked, Confirmed)


async def confirm(
    cluster: Cluster, receipt: Receipt | BatchReceipt, wanted: ConfirmRequest, clock: Clock
) -> None:
    """Return when the group has acked everything; else raise `NotConfirmed`."""
    if not isinstance(receipt, Receipt | BatchReceipt):
        raise BadRequest(
            f"receipt is {typed(receipt)}; confirm() takes what send() or send_many() returned"
        )
    until = asyncio.get_running_loop().time() + wanted.timeout
    spans = spans_of(receipt)
    later = delayed_rows(receipt)
    limit = asyncio.Semaphore(ASKING_MAX)

    reasons: list[str] = []

    async def wait(span: Span) -> Confirmed:
        async with limit:
            return await _wait(cluster, span, wanted.group, until, reasons)

    async def find(delayed: Receipt) -> Span | str:
        async with limit:
            return await place_of(cluster, delayed, until, clock)

    try:
        found = await asyncio.gather(*(find(delayed) for delayed in later))
        spans += [place for place in found if isinstance(place, Span)]
        answers = await asyncio.gather(*(wait(span) for span in spans))
    except (GroupNotFound, TopicNotFound) as error:
        text = f"{_what(receipt)} stored, but nobody will confirm: {error.message}"
        raise NotConfirmed(text, state="deleted", receipt=receipt) from None
    missing = [
        (span, first, end, state)
        for span, answer in zip(spans, answers, strict=True)
        for first, end, state in [*((a, b, OPEN) for a, b in answer.open), *answer.refused]
    ]
    for delayed, place in zip(later, found, strict=True):
        if isinstance(place, str):
            at = delayed.sequence
            span = Span(delayed.topic, delayed.broker_group, at, at + 1)
            missing.append((span, at, at + 1, place))
    if missing:
        refusal = _not_confirmed(receipt, wanted, missing)
        if reasons:
            refusal = NotConfirmed(f"{refusal.message}; {reasons[-1]}", **refusal.details)
        raise refusal


def spans_of(receipt: Receipt | BatchReceipt) -> list[Span]:
    """Where the messages are that were sent for now, neighbours together."""
    if isinstance(receipt, Receipt):
        if receipt.due_at_ms is not None:
            return []
        at = receipt.sequence
        return [Span(receipt.topic, receipt.broker_group, at, at + 1)]
    found: list[Span] = []
    parts = [part for part in receipt.parts() if part[0].due is None]
    for published, row, count in sorted(
        parts, key=lambda part: (part[0].broker_group, part[0].base_sequence + part[1])
    ):
        first = published.base_sequence + row
        last = found[-1] if found else None
        if last and (last.broker_group, last.end) == (published.broker_group, first):
            found[-1] = last._replace(end=first + count)
        else:
            found.append(Span(published.topic, published.broker_group, first, first + count))
    return found


async def _wait(
    cluster: Cluster, span: Span, group: str, until: float, reasons: list[str]
) -> Confirmed:
    """The answer about one span; with rows still open only when time is up, and with a reason where
    the broker could not answer."""
    loop = asyncio.get_running_loop()
    link = cluster.broker(span.broker_group)
    known = Confirmed(open=[(span.first, span.end)], refused=[])
    failures = 0
    while True:
        left = until - loop.time()
        first, end = known.open[0][0], known.open[-1][1]
        wait_s = max(0.0, min(left, WAIT_S))
        asked = Confirm(
            topic=span.topic, group=group, first=first, end=end, wait_ms=int(wait_s * 1000)
        )
        try:
            async with asyncio.timeout(max(left, 0) + ANSWER_S):
                connection = await link.get()
                answer = await request(
                    connection, Command.CONFIRM, asked, Confirmed, timeout=wait_s + ANSWER_S
                )
        except TimeoutError:
            return known
        except TernError as error:
            if not error.retryable:
                raise
            failures += 1
            if loop.time() >= until:
                reasons.append(error.message)
                return known
            await asyncio.sleep(min(back_off(failures), max(0.0, until - loop.time())))
            continue
        failures = 0
        known = Confirmed(open=answer.open, refused=[*known.refused, *answer.refused])
        if not answer.open or loop.time() >= until:
            return known


def _what(receipt: Receipt | BatchReceipt) -> str:
    if isinstance(receipt, BatchReceipt) and len(receipt) == 1:
        receipt = receipt[0]
    if isinstance(receipt, Receipt):
        return f"message {receipt.id} to {receipt.topic!r} (sequence {receipt.sequence}) is"
    stored = sum(count for _, _, count in receipt.parts())
    first = min(published.base_sequence + row for published, row, _ in receipt.parts())
    topic = receipt.parts()[0][0].topic
    return f"{stored} messages to {topic!r} (from sequence {first}) are"


def _not_confirmed(
    receipt: Receipt | BatchReceipt,
    wanted: ConfirmRequest,
    missing: list[tuple[Span, int, int, str]],
) -> NotConfirmed:
    states = {state: 0 for _, _, _, state in missing}
    for _, first, end, state in missing:
        states[state] += end - first
    only = next(iter(states)) if len(states) == 1 else "several"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    if only == OPEN:
        why = f"did not ack within {wanted.timeout:g} s ({counts}); it may still do so"
    elif only == WAITING:
        why = "cannot ack what is not due yet"
    elif only == CANCELLED:
        why = "never gets it: it was cancelled before it was due, or its topic deleted"
    elif only == "unknown":
        why = "settled it too long ago to tell whether by an ack"
    else:
        why = f"did not ack: {counts}"
    return NotConfirmed(
        f"{_what(receipt)} stored, but group {wanted.group!r} {why}",
        state=only,
        receipt=receipt,
        missing=[(first, end, state) for _, first, end, state in missing],
    )
