"""What every call of the API needs, and how a call finds it.

With logins each caller has parts of its own (`api/callers.py`), which whoever recognised
it has put beside the request; without, everybody has the same.
"""

from dataclasses import dataclass
from typing import Final

from fastapi import Request

from ternmq.api.caller_rights import EVERYTHING, CallerRights
from ternmq.api.http_consumers import HttpConsumers
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.message_masks import MessageMasks
from ternmq.api.views.watch import LooksShared
from ternmq.client.client import Client
from ternmq.core.clock import Clock

SERVICE: Final = "tern.service"
"""Where in the scope of a request the parts of its caller are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiService:
    """The parts behind the API."""

    mq: Client
    watch: LooksShared
    browser: MessageBrowser
    consumers: HttpConsumers
    clock: Clock
    masks: MessageMasks
    rights: CallerRights = EVERYTHING


def service_of(request: Request) -> ApiService:
    """Of the caller, or of the application that answers this request."""
    service = request.scope.get(SERVICE) or request.app.state.service
    assert isinstance(service, ApiService)
    return service
