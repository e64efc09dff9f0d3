"""The codes that RocketMQ clients read in the status of an answer, and which error becomes which.

A refusal of the application kind travels inside an answer that is otherwise fine. Clients act by
the code: 42900 makes them slow down, 50400 makes them send the same message again at once, 40013
ends the repeats of an ack. The text begins with the name of the code: users look for it.
"""

from enum import IntEnum

from ternmq.core.errors import (
    BadFilter,
    BadName,
    BadRequest,
    BufferFull,
    Corrupt,
    DiskFull,
    FilterConflict,
    Forbidden,
    GroupNotFound,
    LeaseLost,
    Moved,
    NotMaster,
    OverLimit,
    Paused,
    ReadOnly,
    SendUnknown,
    TernError,
    TooLarge,
    TopicNotFound,
    TransactionEnded,
    TransactionNotFound,
    Unauthorized,
    Unavailable,
)


class Code(IntEnum):
    """How a call went, by the numbers of the protocol."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    UNSUPPORTED = 50500


class Refused(Exception):
    """Ends a call with an application status; raised by handlers and mappings."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


CODES: tuple[tuple[type[TernError], Code], ...] = (
    (BadFilter, Code.ILLEGAL_FILTER_EXPRESSION),
    (FilterConflict, Code.ILLEGAL_FILTER_EXPRESSION),
    (BadName, Code.ILLEGAL_TOPIC),
    (TooLarge, Code.MESSAGE_BODY_TOO_LARGE),
    (BadRequest, Code.BAD_REQUEST),
    (TopicNotFound, Code.TOPIC_NOT_FOUND),
    (GroupNotFound, Code.CONSUMER_GROUP_NOT_FOUND),
    (Forbidden, Code.FORBIDDEN),
    (Unauthorized, Code.UNAUTHORIZED),
    (OverLimit, Code.TOO_MANY_REQUESTS),
    (Paused, Code.TOO_MANY_REQUESTS),
    (BufferFull, Code.TOO_MANY_REQUESTS),
    (DiskFull, Code.TOO_MANY_REQUESTS),
    (ReadOnly, Code.FORBIDDEN),
    (LeaseLost, Code.INVALID_RECEIPT_HANDLE),
    (TransactionNotFound, Code.INVALID_TRANSACTION_ID),
    (TransactionEnded, Code.INVALID_TRANSACTION_ID),
    (Unavailable, Code.PROXY_TIMEOUT),
    (Moved, Code.PROXY_TIMEOUT),
    (NotMaster, Code.PROXY_TIMEOUT),
    (SendUnknown, Code.PROXY_TIMEOUT),
    (Corrupt, Code.INTERNAL_SERVER_ERROR),
)
"""The first that fits."""


def code_of(error: TernError) -> Code:
    """What a RocketMQ client is told about one of our errors."""
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    return Code.PROXY_TIMEOUT if error.retryable else Code.INTERNAL_SERVER_ERROR


def text_of(code: Code, message: str = "") -> str:
    """The text of a status: always with the name of its code."""
    return f"{code.name}: {message}" if message else code.name
