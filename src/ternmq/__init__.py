"""TernMQ, a message queue. These names are the client contract; `ternmq.sync` has them blocking.

Importing starts nothing: no thread, no socket, no configuration file is touched.
"""

from ternmq import sync
from ternmq.batch.encoder import Outgoing
from ternmq.client.admin import Admin
from ternmq.client.app import App
from ternmq.client.checker import TransactionCheck, Verdict
from ternmq.client.client import Client, connect
from ternmq.client.codec import Codec
from ternmq.client.config import ClientConfig
from ternmq.client.consumer import Consumer
from ternmq.client.delays import CancelResult
from ternmq.client.detached import Detached, DetachedEnding
from ternmq.client.finding import Finding
from ternmq.client.half_receipts import HalfReceipt, HalfReceipts
from ternmq.client.last_error import LastError
from ternmq.client.message import Message, MessageBatch
from ternmq.client.once import OnceReceipt
from ternmq.client.producer import Stats
from ternmq.client.reader import Reader
from ternmq.client.receipt import BatchReceipt, Receipt
from ternmq.client.replay import Replay, ReplayProgress
from ternmq.client.transaction import Rollback, Transaction
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
    Fenced,
    FilterConflict,
    GroupNotFound,
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
)
from ternmq.wire.commands import Start, TopicSettings

__version__ = "0.1.0"

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
    "DetachedEnding",
    "DiskFailed",
    "DiskFull",
    "Diverged",
    "Fenced",
    "FilterConflict",
    "Finding",
    "GroupNotFound",
    "HalfReceipt",
    "HalfReceipts",
    "LastError",
    "LeaseLost",
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
    "connect",
    "sync",
]
