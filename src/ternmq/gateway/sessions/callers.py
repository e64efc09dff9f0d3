"""Who calls, as the headers of a call say; checked, and bounded."""

from dataclasses import dataclass

from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.languages import ClientHabits, habits_of
from ternmq.rpc.http2.calls import RemoteCall

CLIENT_ID = "x-mq-client-id"
LANGUAGE = "x-mq-language"
NAMESPACE = "x-mq-namespace"
CLIENT_ID_SIZE_MAX = 512
NAMESPACE_SIZE_MAX = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketCaller:
    """The client behind a call."""

    client_id: str
    language: str
    namespace: str
    user: str = ""
    """Who it has proved to be; empty where nobody has to."""

    @property
    def habits(self) -> ClientHabits:
        return habits_of(self.language)


def read_caller(call: RemoteCall, user: str = "") -> RocketCaller:
    """Raises `Refused` where a client does not say who it is."""
    headers = call.metadata
    client_id = headers.get(CLIENT_ID, "")
    if not 0 < len(client_id) <= CLIENT_ID_SIZE_MAX:
        raise Refused(
            Code.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} has 1 to {CLIENT_ID_SIZE_MAX} letters"
        )
    return RocketCaller(
        client_id=client_id,
        language=headers.get(LANGUAGE, "")[:32],
        namespace=headers.get(NAMESPACE, "")[:NAMESPACE_SIZE_MAX],
        user=user,
    )
