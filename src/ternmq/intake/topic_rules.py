"""Rules of a topic: which messages it takes, from which applications, and who may create it.

Brokers and delay servers refuse the same things with the same words, so that a message that is
accepted for later is not refused when it is due. Pure; what is refused costs nothing but a look.
"""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from ternmq.batch.check import Incoming
from ternmq.batch.layout import BATCH_SIZE_MAX, Column, ColumnPart
from ternmq.batch.seal import TAG_SIZE
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadName, BadRequest, TooLarge, TopicNotFound, Unauthorized
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import RESERVED
from ternmq.security.access.quota import UserUse
from ternmq.wire.messages.topics import Topic, TopicSettings

Payload = bytearray | memoryview


def check_app(topic: Topic, app: str) -> None:
    """A closed topic serves only the applications it names."""
    if topic.settings.closed and app not in topic.settings.apps:
        raise Unauthorized(
            f"topic {topic.name!r} is closed and application {app!r} is not on its list; "
            "ask its owner to add it"
        )


def check_body_sizes(topic: Topic, incoming: Incoming, batch: Payload) -> None:
    """A limit below that of batches counts a body as it is before compression; an encrypted one as
    it is sent, without what encryption adds."""
    limit = topic.settings.body_size_max + (TAG_SIZE if topic.settings.master_key else 0)
    if incoming.body_size <= limit or limit >= BATCH_SIZE_MAX:
        return
    offsets = BatchView(batch).buffer(Column.BODY, ColumnPart.OFFSETS)
    largest = int(np.diff(np.frombuffer(offsets or b"", dtype="<i4")).max())
    if largest > limit:
        raise TooLarge(
            f"a body of {largest} bytes; topic {topic.name!r} takes at most {limit}: send a link "
            f"to large data, or raise it with 'tern topic set {topic.name} --body-size-max'"
        )


def check_sealed(topic: Topic, batch: Payload) -> None:
    """A topic with a master key takes encrypted bodies only."""
    view = BatchView(batch)
    if view.sealed and None not in view.seals():
        return
    raise BadRequest(
        f"topic {topic.name!r} takes encrypted bodies only (master key "
        f"{topic.settings.master_key!r}), and these are not: a client that was connected before "
        "that was set learns of it in a moment, send again; one before 0.2 cannot encrypt"
    )


def check_new_topic(name: str, *, auto_create: bool) -> None:
    """May this topic be made by sending to it?"""
    if name.startswith(RESERVED):
        raise BadName(f"{name!r}: names that begin with '%' are the servers' own")
    check_name("topic", name)
    if not auto_create:
        raise topic_not_found(name, auto_create=False)


def made_for(
    use: UserUse | None, settings: TopicSettings, topics: Callable[[], list[Topic]]
) -> TopicSettings:
    """Of a topic that a user makes, also by its first message; raises where it has too many."""
    if use is None:
        return settings
    if use.quota.topics_max:
        there = sum(
            each.settings.made_by == use.name and not each.name.startswith(RESERVED)
            for each in topics()
        )
        use.check_made("topics", there, use.quota.topics_max)
    return replace(settings, made_by=use.name)


def topic_not_found(name: str, *, auto_create: bool) -> TopicNotFound:
    """What to do about it."""
    return TopicNotFound(
        f"topic {name!r} does not exist here; create it with 'tern topic create {name}'"
        + ("" if auto_create else " (auto_create_topics is off)")
    )
