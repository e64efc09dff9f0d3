"""Celery and kombu on TernMQ: `broker_url = "tern://127.0.0.1:7700"`.

Celery finds the scheme by itself where `ternmq[celery]` is installed; for kombu alone import this
package, or name the class: `broker_transport = "ternmq.kombu:Transport"`. See docs/celery.md.
"""

from typing import TYPE_CHECKING, Any

from ternmq.kombu.aliases import register

if TYPE_CHECKING:
    from ternmq.kombu.transport import Transport

__all__ = ["Transport", "register"]

register()


def __getattr__(name: str) -> Any:
    if name != "Transport":
        raise AttributeError(f"module 'ternmq.kombu' has no attribute {name!r}")
    from ternmq.kombu.transport import Transport

    return Transport
