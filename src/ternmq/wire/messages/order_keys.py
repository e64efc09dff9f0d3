"""Order keys: which are stopped, and which broker group has which slots of them."""

from typing import Annotated, Literal

from msgspec import Meta

from ternmq.core.slots import SLOTS
from ternmq.wire.record import Number, Record

Slot = Annotated[int, Meta(ge=0, lt=SLOTS)]


class Placement(Record, frozen=True):
    version: Number = 0
    """Grows with every change."""
    groups: list[str] = []
    """Names of broker groups; below, one is its position in this list."""
    owners: list[Number] = []
    """Of each slot. Empty: no message with an order key was sent yet."""
    closing: dict[Number, Number] = {}
    """Slots that their owner shall give up, and to which. No group stores into them meanwhile."""
    behind: dict[Number, Number] = {}
    """Slots whose former owner has rows that come first, and who that is."""
    weights: dict[str, Number] = {}
    """Of broker groups; those that are not named have 100. 0: nothing new."""

    def owner(self, slot: int) -> str | None:
        """The broker group that stores into this slot now; None while it moves, or at first."""
        if not self.owners or slot in self.closing:
            return None
        return self.groups[self.owners[slot]]


class Home(Record, frozen=True):
    """Where a topic's new messages without order keys are stored."""

    count: Number = 0
    """On so many broker groups; 0: all."""
    broker_groups: list[str] = []
    """Or on these."""


class PlaceChange(Record, frozen=True):
    """Ask for the placement, or for a change of it."""

    action: Literal[
        "read", "assign", "move", "balance", "stopped", "settled", "release", "weight", "known"
    ] = "read"
    broker_group: str = ""
    """It asks (assign, stopped, settled), gets slots (move), or is meant (release, weight)."""
    slots: list[Slot] = []
    leaving: list[str] = []
    """Balance: broker groups that shall have none."""
    weight: Number = 0
    force: bool = False
    """Move: do not wait for an owner that is gone."""
    known: Placement | None = None
    """Known: what a broker has heard of, for a registry that was put back from an older copy."""


class Placed(Record, frozen=True):
    placement: Placement
    moves: Number = 0
    """Slots that this request set in motion."""


class SlotsFind(Record, frozen=True):
    """From a broker to another: of which of these slots has a group not settled all rows there?
    Without a group: has any ordered one not?"""

    topic: str
    group: str
    slots: list[Slot]


class SlotsOpen(Record, frozen=True):
    slots: list[Slot]
    """Those of them that are not settled."""


class StoppedKey(Record, frozen=True):
    """A key whose first unsettled message failed in a group that stops then."""

    key: str | None
    sequence: Number
    attempt: Number
    """The attempt that would come next."""
    held_back: Number
    """Messages of this key that are known to wait behind it."""
    error: str = ""


class GroupKeys(Record, frozen=True):
    stopped: list[StoppedKey]
    """The first ones, by sequence."""
    stopped_count: Number = 0
    full_since_ms: Number = 0
    """Since when a failing key has filled the look-ahead; 0: it has not."""
    full_key: str = ""
    full_rows: Number = 0
    """Known messages that wait behind that key."""


class KeyResume(Record, frozen=True):
    """Let stopped keys go on: retried, or (`skip`) with the failed message as a dead letter."""

    topic: str
    group: str
    key: str | None = None
    """None: every one of them."""
    skip: bool = False


class KeyResumed(Record, frozen=True):
    rows: Number
