"""What every call of the API needs, and how a call finds it."""

from dataclasses import dataclass

from fastapi import Request

from ternmq.api.http_consumers import HttpConsumers
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.watch import Watch
from ternmq.client.client import Client
from ternmq.core.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiService:
    """The parts behind the API."""

    mq: Client
    watch: Watch
    browser: MessageBrowser
    consumers: HttpConsumers
    clock: Clock


def service_of(request: Request) -> ApiService:
    """Of the application that answers this request."""
    service = request.app.state.service
    assert isinstance(service, ApiService)
    return service
