"""Header blocks that we send: the begin of an answer, its end, and the two in one.

Most are the same bytes for every call. Texts are percent-encoded as gRPC asks. Pure.
"""

from urllib.parse import quote

from ternmq.rpc.http2.calls import CallStatus
from ternmq.rpc.http2.hpack import encode_headers

TEXT_SIZE_MAX = 1_024
_TEXT_SAFE = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
_BEGIN = [(":status", "200"), ("content-type", "application/grpc")]

ANSWER_BEGIN = encode_headers(_BEGIN)
ANSWER_OK = encode_headers([("grpc-status", "0")])
TABLE_UNUSED = b"\x20"
"""Goes before the next block when the other side has made its table smaller."""


def _status(status: CallStatus, message: str) -> list[tuple[str, str]]:
    headers = [("grpc-status", str(int(status)))]
    if message:
        headers.append(("grpc-message", quote(message[:TEXT_SIZE_MAX], safe=_TEXT_SAFE)))
    if status is CallStatus.UNIMPLEMENTED:
        headers.append(("grpc-accept-encoding", "identity"))
    return headers


def end_block(status: CallStatus, message: str) -> bytes:
    """After messages."""
    if status is CallStatus.OK and not message:
        return ANSWER_OK
    return encode_headers(_status(status, message))


def only_block(status: CallStatus, message: str) -> bytes:
    """Where there are no messages: begin and end in one."""
    return encode_headers([*_BEGIN, *_status(status, message)])


def http_block(http_status: int) -> bytes:
    """For who speaks HTTP/2 and does not call."""
    return encode_headers([(":status", str(http_status)), ("content-type", "text/plain")])
