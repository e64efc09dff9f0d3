"""Events of a member that its current role may act on: a new standing, damage, changed topics.

A role that acts on an event has its own `MemberEvents`, which it hands to the `MemberContext` while
it lasts; what it does not override it does not care about.
"""

from ternmq.wire.messages.standings import Standing
from ternmq.wire.messages.topics import Topic


class MemberEvents:
    """Handlers that do nothing: a role overrides those that it acts on."""

    def on_standing(self, standing: Standing) -> None:
        """The broker group stands so; at once for a later epoch, else once it is on disk."""

    def on_damage(self, reason: str) -> bool:
        """Stored bytes are damaged; False: nobody could take over at present."""
        return True

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is gone."""

    def topic_changed(self, topic: Topic) -> None:
        """A topic has other settings."""


NOBODY = MemberEvents()
