"""TernMQ, a message queue. These names are the client contract; `ternmq.sync` has them blocking.

Importing starts nothing: no thread, no socket, no configuration file is touched. It also imports
next to nothing: a name is looked up when it is first used, and brings its module with it. So a
program that only has TernMQ among its imports does not pay for numpy, asyncio and the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ternmq.core.process import VERSION

if TYPE_CHECKING:
    from ternmq import sync
    from ternmq.batch.encoder import Outgoing
    from ternmq.client.admin.admin import Admin
    from ternmq.client.admin.delays import CancelResult
    from ternmq.client.admin.replay import Replay, ReplayProgress
    from ternmq.client.app.app import App
    from ternmq.client.app.local_delivery import LocalDelivery
    from ternmq.client.app.parameters import Depends
    from ternmq.client.app.router import Router
    from ternmq.client.client import Client, connect
    from ternmq.client.codecs.codec import Codec
    from ternmq.client.config import ClientConfig
    from ternmq.client.consuming.consumer import Consumer
    from ternmq.client.consuming.detached_consumer import DetachedConsumer, HandleVerdict
    from ternmq.client.model.half_receipt import HalfReceipt, HalfReceipts
    from ternmq.client.model.last_error import LastError
    from ternmq.client.model.message import Message, MessageBatch
    from ternmq.client.model.receipt import BatchReceipt, Receipt, SendStatus
    from ternmq.client.producing.send_buffer import Stats
    from ternmq.client.producing.send_many import outgoing
    from ternmq.client.producing.send_once import OnceReceipt
    from ternmq.client.reading.find import Finding
    from ternmq.client.reading.reader import Reader
    from ternmq.client.transactions.checker import TransactionCheck, Verdict
    from ternmq.client.transactions.detached import Detached, DetachedEnding
    from ternmq.client.transactions.transaction import Rollback, Transaction
    from ternmq.core.errors import (
        AlreadyExists,
        BadConfig,
        BadFilter,
        BadName,
        BadRequest,
        BufferFull,
        Closed,
        Conflict,
        Corrupt,
        DecodeError,
        DiskFailed,
        DiskFull,
        Diverged,
        DocumentNotFound,
        Erased,
        Fenced,
        FilterConflict,
        Forbidden,
        GroupNotFound,
        IdentityNotFound,
        KeyNotFound,
        LeaseLost,
        MasterAlive,
        Moved,
        NotConfirmed,
        NotInSync,
        NotMaster,
        OverLimit,
        Paused,
        ProtocolError,
        PutAside,
        ReadOnly,
        SendUnknown,
        SequenceTooOld,
        TernError,
        TooLarge,
        TopicNotFound,
        TransactionEnded,
        TransactionNotFound,
        Unauthorized,
        Unavailable,
        VersionMismatch,
    )
    from ternmq.wire.messages.groups import Group, LedgerLine, Start
    from ternmq.wire.messages.topics import TopicSettings

__version__ = VERSION

__all__ = [
    "Admin",
    "AlreadyExists",
    "App",
    "BadConfig",
    "BadFilter",
    "BadName",
    "BadRequest",
    "BatchReceipt",
    "BufferFull",
    "CancelResult",
    "Client",
    "ClientConfig",
    "Closed",
    "Codec",
    "Conflict",
    "Consumer",
    "Corrupt",
    "DecodeError",
    "Depends",
    "Detached",
    "DetachedConsumer",
    "DetachedEnding",
    "DiskFailed",
    "DiskFull",
    "Diverged",
    "DocumentNotFound",
    "Erased",
    "Fenced",
    "FilterConflict",
    "Finding",
    "Forbidden",
    "Group",
    "GroupNotFound",
    "HalfReceipt",
    "HalfReceipts",
    "HandleVerdict",
    "IdentityNotFound",
    "KeyNotFound",
    "LastError",
    "LeaseLost",
    "LedgerLine",
    "LocalDelivery",
    "MasterAlive",
    "Message",
    "MessageBatch",
    "Moved",
    "NotConfirmed",
    "NotInSync",
    "NotMaster",
    "OnceReceipt",
    "Outgoing",
    "OverLimit",
    "Paused",
    "ProtocolError",
    "PutAside",
    "ReadOnly",
    "Reader",
    "Receipt",
    "Replay",
    "ReplayProgress",
    "Rollback",
    "Router",
    "SendStatus",
    "SendUnknown",
    "SequenceTooOld",
    "Start",
    "Stats",
    "TernError",
    "TooLarge",
    "TopicNotFound",
    "TopicSettings",
    "Transaction",
    "TransactionCheck",
    "TransactionEnded",
    "TransactionNotFound",
    "Unauthorized",
    "Unavailable",
    "Verdict",
    "VersionMismatch",
    "connect",
    "outgoing",
    "sync",
]

# Where each of these names lives; a test compares it with the imports above.
_HOMES = {
    "ternmq.batch.encoder": ("Outgoing",),
    "ternmq.client.admin.admin": ("Admin",),
    "ternmq.client.admin.delays": ("CancelResult",),
    "ternmq.client.admin.replay": ("Replay", "ReplayProgress"),
    "ternmq.client.app.app": ("App",),
    "ternmq.client.app.local_delivery": ("LocalDelivery",),
    "ternmq.client.app.parameters": ("Depends",),
    "ternmq.client.app.router": ("Router",),
    "ternmq.client.client": ("Client", "connect"),
    "ternmq.client.config": ("ClientConfig",),
    "ternmq.client.consuming.consumer": ("Consumer",),
    "ternmq.client.consuming.detached_consumer": ("DetachedConsumer", "HandleVerdict"),
    "ternmq.client.codecs.codec": ("Codec",),
    "ternmq.client.model.half_receipt": ("HalfReceipt", "HalfReceipts"),
    "ternmq.client.model.last_error": ("LastError",),
    "ternmq.client.model.message": ("Message", "MessageBatch"),
    "ternmq.client.model.receipt": ("BatchReceipt", "Receipt", "SendStatus"),
    "ternmq.client.producing.send_buffer": ("Stats",),
    "ternmq.client.producing.send_many": ("outgoing",),
    "ternmq.client.producing.send_once": ("OnceReceipt",),
    "ternmq.client.reading.find": ("Finding",),
    "ternmq.client.reading.reader": ("Reader",),
    "ternmq.client.transactions.checker": ("TransactionCheck", "Verdict"),
    "ternmq.client.transactions.detached": ("Detached", "DetachedEnding"),
    "ternmq.client.transactions.transaction": ("Rollback", "Transaction"),
    "ternmq.core.errors": (
        "AlreadyExists",
        "BadConfig",
        "BadFilter",
        "BadName",
        "BadRequest",
        "BufferFull",
        "Closed",
        "Conflict",
        "Corrupt",
        "DecodeError",
        "DiskFailed",
        "DiskFull",
        "Diverged",
        "DocumentNotFound",
        "Erased",
        "Fenced",
        "FilterConflict",
        "Forbidden",
        "GroupNotFound",
        "IdentityNotFound",
        "KeyNotFound",
        "LeaseLost",
        "MasterAlive",
        "Moved",
        "NotConfirmed",
        "NotInSync",
        "NotMaster",
        "OverLimit",
        "Paused",
        "ProtocolError",
        "PutAside",
        "ReadOnly",
        "SendUnknown",
        "SequenceTooOld",
        "TernError",
        "TooLarge",
        "TopicNotFound",
        "TransactionEnded",
        "TransactionNotFound",
        "Unauthorized",
        "Unavailable",
        "VersionMismatch",
    ),
    "ternmq.wire.messages.groups": ("Group", "LedgerLine", "Start"),
    "ternmq.wire.messages.topics": ("TopicSettings",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "sync":
        return importlib.import_module("ternmq.sync")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'ternmq' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value  # The next look finds it without asking.
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
