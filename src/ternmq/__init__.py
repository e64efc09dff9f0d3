"""TernMQ, a message queue. These names are the client contract; `ternmq.sync` has them blocking.

Importing starts nothing: no thread, no socket, no configuration file is touched.
"""

from ternmq import sync
from ternmq.batch.encoder import Outgoing
from ternmq.client.admin.admin import Admin
from ternmq.client.admin.delays import CancelResult
from ternmq.client.admin.replay import Replay, ReplayProgress
from ternmq.client.app.app import App
from ternmq.client.client import Client, connect
from ternmq.client.config import ClientConfig
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.consuming.detached import DetachedConsumer, HandleVerdict
from ternmq.client.model.codec import Codec
from ternmq.client.model.half_receipt import HalfReceipt, HalfReceipts
from ternmq.client.model.last_error import LastError
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.receipt import BatchReceipt, Receipt, SendStatus
from ternmq.client.producing.send_buffer import Stats
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
from ternmq.core.process import VERSION
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
    "sync",
]
