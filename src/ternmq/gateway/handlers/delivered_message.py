"""A stored message as RocketMQ clients get it.

What a RocketMQ client sent comes back as it was sent; a message of a TernMQ client gets what it
needs: its id as text, typed properties as text, its first key as the only one. Delivered bodies
have an MD5 digest and no encoding: less makes one client or another fail.
"""

import base64
import hashlib
import json
from typing import Any

from ternmq.batch.properties import PropertyValue
from ternmq.client.model.message import Message
from ternmq.gateway.protocol.enums import MD5, Encoded, MessageKind
from ternmq.gateway.protocol.incoming_message import RESERVED
from ternmq.gateway.protocol.message_ids import client_id_text
from ternmq.gateway.protocol.messages import RocketMessage
from ternmq.gateway.protocol.spans import put_ms

STORE_HOST = "ternmq"


def property_text(value: PropertyValue) -> str:
    """A typed value as the text that RocketMQ clients read."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _notes(properties: dict[str, PropertyValue]) -> dict[str, Any]:
    """What the sender noted; nothing where it was no RocketMQ client."""
    written = properties.pop(RESERVED, None)
    if not isinstance(written, str):
        return {}
    try:
        noted = json.loads(written)
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def make_delivered(message: Any, asked: Any) -> Any:
    """One message for a client that asked for its topic by this resource, without its receipt."""
    properties = dict(message.properties)
    noted = _notes(properties)
    made = RocketMessage()
    made.topic.resource_namespace = asked.resource_namespace
    made.topic.name = asked.name
    made.body = body = message.body
    for name, value in properties.items():
        made.user_properties[name] = property_text(value)
    system = made.system_properties
    if message.tag is not None:
        system.tag = message.tag
    keys = noted.get("keys")
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        system.keys.extend(keys)
    elif message.key is not None:
        system.keys.append(message.key)
    system.message_id = client_id_text(message.id)
    system.body_digest.type = MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoded.IDENTITY
    system.message_type = _kind(noted.get("type"), message)
    system.born_host = str(noted.get("host", STORE_HOST))
    system.store_host = STORE_HOST
    put_ms(system.born_timestamp, _ms(message.born_at))
    if message.order_key is not None:
        system.message_group = message.order_key
    if message.priority:
        system.priority = message.priority
    if isinstance(noted.get("due"), int):
        put_ms(system.delivery_timestamp, noted["due"])
    if isinstance(noted.get("trace"), str):
        system.trace_context = noted["trace"]
    return made


def put_delivery(made: Any, message: Message, handle: str, invisible_ms: int) -> None:
    """What only a message that is handed out has: where it lies, its receipt, its attempt."""
    system = made.system_properties
    put_ms(system.store_timestamp, _ms(message.stored_at))
    system.queue_id = 0
    system.queue_offset = message.sequence
    system.receipt_handle = handle
    system.delivery_attempt = message.attempt
    put_ms(system.invisible_duration, invisible_ms)


def _kind(noted: object, message: Any) -> MessageKind:
    if isinstance(noted, int) and noted in list(MessageKind):
        return MessageKind(noted)
    if message.order_key is not None:
        return MessageKind.FIFO
    return MessageKind.PRIORITY if message.priority else MessageKind.NORMAL


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
