"""Every error TernMQ raises on purpose: one tree, each with a stable code.

An error answers two questions: whose fault is it (the class name is the fact), and does trying
again help (`retryable`). Its text says what to do. `code` travels over the wire and never changes;
`from_code` turns it back into the class on the other side, so a client raises the very error that
the broker raised. `definite` tells a producer that the message was certainly not stored.
"""

from typing import Any, ClassVar, Self


class TernError(Exception):
    """Base of every error this package raises on purpose."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def copy(self) -> Self:
        """This error once more, for another waiter: raising writes a traceback into it."""
        copied = type(self)(self.message)
        copied.details = dict(self.details)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.details))


class BadRequest(TernError):
    """The caller asked for something that can never work."""

    code = "bad_request"


class BadName(BadRequest):
    """A topic, group or application name breaks the naming rule."""

    code = "bad_name"


class BadConfig(BadRequest):
    """A setting is unknown or out of its limits; found at start, before anything runs."""

    code = "bad_config"


class TooLarge(BadRequest):
    """A message or batch is larger than the limit, after compression."""

    code = "too_large"


class DecodeError(BadRequest):
    """A body is not what the codec or the type asked for reads; it never will be."""

    code = "decode_error"


class BadFilter(BadRequest):
    """A filter expression does not parse."""

    code = "bad_filter"


class FilterConflict(BadRequest):
    """Two consumers of one group subscribe with different filters."""

    code = "filter_conflict"


class TopicNotFound(TernError):
    """The topic does not exist and may not be made by sending to it."""

    code = "topic_not_found"


class GroupNotFound(TernError):
    """The consumer group does not exist on this topic."""

    code = "group_not_found"


class AlreadyExists(TernError):
    """A topic or group of that name is already there."""

    code = "already_exists"


class Unauthorized(TernError):
    """This application may not do that here (a closed topic, for example)."""

    code = "unauthorized"


class Forbidden(Unauthorized):
    """The asker is known and has no right to do this; the text says how to grant it."""

    code = "forbidden"


class IdentityNotFound(TernError):
    """There is no user of that name."""

    code = "identity_not_found"


class ProtocolError(TernError):
    """The peer sent bytes that break the protocol; the connection is closed."""

    code = "protocol_error"


class Corrupt(TernError):
    """Stored or received bytes do not match their checksum."""

    code = "corrupt"


class KeyNotFound(TernError):
    """A body is encrypted, or has to be, and the key for it is not here."""

    code = "key_not_found"


class Erased(TernError):
    """The key of this body was deleted: nobody can read it any more."""

    code = "erased"


class BufferFull(TernError):
    """The client's send buffer is full; wait, or slow down."""

    code = "buffer_full"
    retryable = True


class OverLimit(TernError):
    """A configured rate or amount is used up for now."""

    code = "over_limit"
    retryable = True

    @property
    def wait(self) -> float | None:
        """Seconds after which there is room again; None where nobody can know."""
        wait_ms = self.details.get("wait_ms")
        return wait_ms / 1000 if isinstance(wait_ms, int) else None


class PutAside(OverLimit):
    """Over a topic's limit and kept with its refused messages, for a person to decide."""

    code = "put_aside"
    retryable = False


class Paused(TernError):
    """Sending to this topic is paused; consuming goes on."""

    code = "paused"
    retryable = True


class ReadOnly(TernError):
    """This broker group takes no messages at the moment; consuming goes on."""

    code = "read_only"
    retryable = True


class NotMaster(TernError):
    """This broker follows another one; ask for routes again."""

    code = "not_master"
    retryable = True


class MasterAlive(TernError):
    """The broker group has a master that was heard of; only when it is silent another may lead."""

    code = "master_alive"
    retryable = True


class NotInSync(TernError):
    """This member of the broker group may lack acknowledged messages, so it cannot lead."""

    code = "not_in_sync"


class Conflict(TernError):
    """The broker group stands otherwise than was thought; another server was faster."""

    code = "conflict"


class VersionMismatch(Conflict):
    """The document was changed since it was read; `details["version"]` says what it has now."""

    code = "version_mismatch"


class DocumentNotFound(TernError):
    """There is no document of that kind and name, or it has expired."""

    code = "document_not_found"


class Diverged(TernError):
    """The master lacks what was acknowledged here: nothing is cut off, a person has to look."""

    code = "diverged"


class Moved(TernError):
    """An order key's slot lies on another broker group, or is about to; ask for routes again."""

    code = "moved"
    retryable = True

    @property
    def version(self) -> int:
        """Of the placement that the broker knows."""
        version = self.details.get("version")
        return version if isinstance(version, int) else 0


class DiskFull(TernError):
    """No space left on the broker; consuming goes on, sending works again when space returns."""

    code = "disk_full"
    retryable = True


class DiskFailed(TernError):
    """The disk answered with an error; nothing since the last good flush is trusted."""

    code = "disk_failed"


class Unavailable(TernError):
    """No answer came in time, or the server is stopping."""

    code = "unavailable"
    retryable = True


class SendUnknown(TernError):
    """The message may or may not be stored: no answer came before `delivery_timeout`."""

    code = "send_unknown"

    @property
    def ids(self) -> list[str]:
        """Of the messages of this call, as `find` takes them; empty where it sent none."""
        return list(self.details.get("ids", ()))

    def about(self, ids: list[str]) -> Self:
        """This error about these messages only."""
        copied = self.copy()
        copied.details["ids"] = ids
        return copied


class NotConfirmed(TernError):
    """The message is stored, but the group it was meant for did not ack it."""

    code = "not_confirmed"

    @property
    def state(self) -> str:
        """What is known instead: 'open' when time was up, 'dead', 'expired', 'filtered' …"""
        return str(self.details.get("state", ""))

    @property
    def receipt(self) -> Any:
        """The receipt of what is stored."""
        return self.details.get("receipt")


class SequenceTooOld(TernError):
    """A repeat is older than what the broker remembers of this producer; not stored again."""

    code = "sequence_too_old"


class TransactionEnded(TernError):
    """The transaction has ended already, and not as asked; `details["state"]` says how."""

    code = "transaction_ended"


class TransactionNotFound(TernError):
    """Nothing is stored under this transaction, or it ended so long ago that this is forgotten."""

    code = "transaction_not_found"


class Fenced(TernError):
    """A later attempt of this detached transaction has begun; this one may not go on."""

    code = "fenced"


class LeaseLost(TernError):
    """The rows of this lease are with another consumer by now."""

    code = "lease_lost"


class Closed(TernError):
    """The client, consumer or server was closed."""

    code = "closed"


def _all_errors(root: type[TernError]) -> dict[str, type[TernError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _all_errors(child)
    return found


ERRORS: dict[str, type[TernError]] = _all_errors(TernError)


def from_code(code: str, message: str, details: dict[str, Any] | None = None) -> TernError:
    """Make the error that a peer named; an unknown code becomes a plain `TernError`."""
    return ERRORS.get(code, TernError)(message, **(details or {}))


def _rebuild(cls: type[TernError], message: str, details: dict[str, Any]) -> TernError:
    return cls(message, **details)
