"""From what a caller passes to `send` to one checked `Outgoing`.

Pure: nothing here waits or sends. Every refusal says which value is wrong and what to write
instead, before the message has entered a buffer or used up a sequence.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import BODY_SIZE_MAX
from ternmq.batch.properties import PropertyValue, check_properties
from ternmq.batch.trace_context import pack_trace
from ternmq.client.codecs.codec import Codec, CodecName, encode_body, find_codec
from ternmq.client.model.arguments import check_options
from ternmq.client.model.due import due_when_sent
from ternmq.client.model.durations import Duration, typed
from ternmq.client.model.times import TIME_MAX_MS, shown
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.core.units import MIB

TEXT_SIZE_MAX = 1024  # Bytes of a key, order key or tag.


class SendOptions(TypedDict, total=False):
    """The keywords of `send`, for type checkers."""

    key: str | None
    tag: str | None
    properties: Mapping[str, PropertyValue] | None
    order_key: str | None
    ttl: float | timedelta | None
    priority: int
    delay: float | timedelta | None
    at: datetime | None
    subject: str | None
    trace: str | None
    codec: Codec | CodecName | None
    confirm_group: str | None
    timeout: Duration | None


class SendManyOptions(SendOptions, total=False):
    """The keywords of `send_many`, for type checkers."""

    wait_for_store: bool


CODEC_HINT = "connect with codec='json' or codec='msgpack'"


def make_body(body: Any, codec: Codec | None, hint: str = CODEC_HINT) -> bytes:
    """The bytes of one message."""
    if type(body) is bytes and codec is None:
        pass  # Most are.
    elif isinstance(body, Outgoing):  # A codec would write it down, options and all, as the body.
        raise BadRequest(
            "an Outgoing goes into a list: send_many(topic, [outgoing]); send() takes a body and "
            "options"
        )
    elif codec is not None:
        body = encode_body(codec, body)
    elif not isinstance(body, bytes | bytearray | memoryview):
        raise BadRequest(
            f"a body is bytes, not {type(body).__name__}: encode it (text.encode()), or {hint}"
        )
    if type(body) is not bytes:
        body = bytes(memoryview(body))  # Not by `bytes(body)`: a subclass may say something else.
    if len(body) > BODY_SIZE_MAX:
        raise TooLarge(
            f"a body of {len(body)} bytes; the limit is {BODY_SIZE_MAX // MIB} MiB before and "
            "4 MiB after compression: send a link to large data"
        )
    return body  # type: ignore[no-any-return]


def listed_bodies(bodies: Any) -> Sequence[Any]:
    """The messages of one call as a list; a lone body is refused, not taken apart."""
    if isinstance(bodies, list | tuple):
        return bodies
    if isinstance(bodies, Iterable) and not isinstance(
        bodies, str | bytes | bytearray | memoryview | Mapping
    ):
        return list(bodies)
    raise BadRequest(f"bodies is {typed(bodies)}; it is a list: send_many(topic, [body, …])")


def take_wait(options: SendManyOptions) -> bool:
    """Take out of the keywords whether the call waits until the messages are stored."""
    waits = options.pop("wait_for_store", True)
    if not isinstance(waits, bool):
        raise BadRequest(f"wait_for_store is {typed(waits)}; it is True or False")
    return waits


def refuse_idle_options(bodies: Sequence[Any], options: SendOptions) -> None:
    """Options are for the messages that bring none of their own; there must be one."""
    used = any(name != "codec" for name in options)
    if used and bodies and all(isinstance(body, Outgoing) for body in bodies):
        raise BadRequest("an Outgoing has its own key, tag and so on; pass no options")


def call_codec(options: SendOptions, codec: Codec | None) -> Codec | None:
    """The codec of this call, else the client's."""
    own = options.get("codec")
    return codec if own is None else find_codec(own)


def make_outgoing(body: bytes, options: SendOptions, now_ms: int) -> Outgoing:
    """One message from a body and the keywords of `send`."""
    check_options("send", options, SendOptions.__annotations__)
    if options.get("confirm_group") is not None or options.get("timeout") is not None:
        raise BadRequest(
            "confirm_group= and timeout= are for send() and send_many(): this waits for nobody"
        )
    due = due_when_sent(options.get("delay"), options.get("at"))
    ready_ms = now_ms  # A message that waits until it is due lives `ttl` from then on.
    if due is not None:
        ready_ms = now_ms + due.ms if due.relative else max(now_ms, due.ms)
    return check_outgoing(
        Outgoing(
            body=body,
            key=options.get("key"),
            tag=options.get("tag"),
            properties=options.get("properties"),
            order_key=options.get("order_key"),
            priority=options.get("priority", 0),
            expire_at_ms=_expire_at(options.get("ttl"), ready_ms),
            due_at_ms=due.ms if due is not None and not due.relative else None,
            delay_ms=due.ms if due is not None and due.relative else None,
            born_at_ms=now_ms,
            subject=options.get("subject"),
            trace=options.get("trace"),
        )
    )


def adopt_outgoing(message: Outgoing, now_ms: int) -> Outgoing:
    """Check a message that the caller built; it stays the caller's, so it is copied."""
    if not isinstance(message, Outgoing):
        raise BadRequest(f"it is {typed(message)}; it is a ternmq.Outgoing(body=…)")
    if message.due_at_ms is not None and message.delay_ms is not None:
        raise BadRequest("an Outgoing has delay_ms (from now) or due_at_ms (a time), not both")
    _check_time("born_at_ms", message.born_at_ms)
    made = Outgoing(  # Field by field: `replace` takes ten times as long.
        body=make_body(message.body, None),
        key=message.key,
        tag=message.tag,
        properties=message.properties,
        order_key=message.order_key,
        priority=message.priority,
        expire_at_ms=message.expire_at_ms,
        due_at_ms=message.due_at_ms,
        born_at_ms=message.born_at_ms or now_ms,
        explicit_id=message.explicit_id,
        delay_ms=message.delay_ms or None,  # No delay at all: it goes straight to its broker.
        subject=message.subject,
        trace=message.trace,
    )
    for name in ("expire_at_ms", "due_at_ms", "delay_ms"):
        if getattr(made, name) is not None:
            _check_time(name, getattr(made, name))
    if made.explicit_id is not None and not isinstance(made.explicit_id, bytes):
        raise BadRequest(f"explicit_id is {shown(made.explicit_id)}; it is bytes, or None for none")
    return check_outgoing(made)


def check_outgoing(message: Outgoing) -> Outgoing:
    """Refuse what no broker could store or no consumer could read back.

    Properties are copied: the caller may go on changing theirs while the message waits.
    """
    message.key = _plain_text("key", message.key)
    message.tag = _plain_text("tag", message.tag)
    message.order_key = _plain_text("order_key", message.order_key)
    if message.subject is not None:
        message.subject = _plain_text("subject", message.subject)
        if not message.subject:
            raise BadRequest("subject is empty; it says whom the message is about, or leave it out")
    if message.trace is not None:
        pack_trace(message.trace)
    if message.properties is not None:
        if not isinstance(message.properties, Mapping):
            raise BadRequest(f"properties is {shown(message.properties)}; it is a dict of names")
        message.properties = check_properties(message.properties)
    priority = message.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 255:
        raise BadRequest(f"priority is {shown(priority)}; it can be 0 (lowest) to 255")
    return message


def _check_time(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TIME_MAX_MS:
        since = "" if name == "delay_ms" else " since 1970"
        raise BadRequest(f"{name} is {shown(value)}; it is milliseconds{since}, 0 to {TIME_MAX_MS}")


def _plain_text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRequest(f"{name} is {shown(value)}; it is a str, or None for none")
    text = str.__str__(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} cannot be written as UTF-8: {error}") from error
    if size > TEXT_SIZE_MAX:
        raise BadRequest(f"{name} has {size} bytes; at most {TEXT_SIZE_MAX} are allowed")
    return text


def _expire_at(ttl: float | timedelta | None, now_ms: int) -> int | None:
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise BadRequest(f"ttl is {typed(ttl)}; it is a number of seconds above 0, or a timedelta")
    if seconds > (TIME_MAX_MS - now_ms) / 1000:
        raise BadRequest(f"ttl is {shown(ttl)}; it would end after the year 9999: leave it out")
    return now_ms + int(seconds * 1000)
