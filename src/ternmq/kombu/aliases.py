"""Makes `tern://` known to kombu, and TernMQ to the parts of Celery that ask for a driver by name.

kombu has one table of schemes and no entry points for it; for serializers it has, see
`serializer.py`. Nothing else of ours is imported here.
"""

import contextlib

SCHEME = "tern"
CLASS = "ternmq.kombu.transport:Transport"


def register() -> None:
    """Idempotent; changes nothing but these tables."""
    from kombu.transport import TRANSPORT_ALIASES

    TRANSPORT_ALIASES.setdefault(SCHEME, CLASS)
    TRANSPORT_ALIASES.setdefault("terns", CLASS)
    with contextlib.suppress(ImportError):  # kombu alone has no workers.
        from celery.worker.consumer.gossip import Gossip
        from celery.worker.consumer.mingle import Mingle

        for step in (Mingle, Gossip):
            step.compatible_transports = {*step.compatible_transports, SCHEME}
