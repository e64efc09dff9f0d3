"""Which rights an action needs: one table, by the names of the actions.

The servers decide; this table says the same before, so that a button which would be refused is
shown as such, with the reason, and an action that is forbidden is refused before its preview. What
an order is about stands in its arguments. An action without a line may be tried by everybody.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ternmq.api.action_steps import Arguments
from ternmq.api.caller_rights import CallerRights
from ternmq.security.access.rights import Right
from ternmq.wire.actions import Action

FindRights = Callable[[Arguments], list[Right]]


@dataclass(frozen=True, slots=True)
class NeededRights:
    """What one action needs; `also`: the other action by which servers let it pass."""

    find: FindRights
    also: Action | None = None


def _of(action: Action, **kinds: str) -> FindRights:
    """Kind of the resource = argument in which its name stands."""
    return lambda given: [(action, kind, given.get(name, "")) for kind, name in kinds.items()]


_DOCUMENTS = (Action.READ, Action.MANAGE)
_TOPIC = NeededRights(_of(Action.MANAGE, topic="topic"))
_GROUP = NeededRights(_of(Action.OPERATE, topic="topic", group="group"))
_SWITCHED = NeededRights(_GROUP.find, Action.SUBSCRIBE)
_DEAD = NeededRights(_of(Action.OPERATE, group="group"))
_REFUSED = NeededRights(_of(Action.OPERATE, topic="topic"))
_DELAYED = NeededRights(_of(Action.DELAY, topic="topic"))
_SERVER = NeededRights(_of(Action.CLUSTER, cluster="broker_group"))
_JOB = NeededRights(lambda given: [(act, "document", "job") for act in _DOCUMENTS])
_USERS = NeededRights(lambda given: [(Action.GRANT, "user", "")])
_USER = NeededRights(_of(Action.GRANT, user="user"))

ACTION_RIGHTS: Mapping[str, NeededRights] = {
    "pause-topic": _TOPIC,
    "resume-topic": _TOPIC,
    "pause-consuming": _TOPIC,
    "resume-consuming": _TOPIC,
    "delete-topic": _TOPIC,
    "pause-group": _SWITCHED,
    "resume-group": _SWITCHED,
    "reset-group": _GROUP,
    "retry-group": _GROUP,
    "resume-key": _GROUP,
    "delete-group": _GROUP,
    "resend-dead": _DEAD,
    "delete-dead": _DEAD,
    "recall-dead": _DEAD,
    "resend-refused": _REFUSED,
    "delete-refused": _REFUSED,
    "cancel-delayed": _DELAYED,
    "move-delayed": _DELAYED,
    "fire-delayed": _DELAYED,
    "disconnect": NeededRights(lambda given: [(Action.CLUSTER, "cluster", "")]),
    "hand-over": _SERVER,
    "promote": _SERVER,
    "set-weight": NeededRights(lambda given: [(Action.CLUSTER, "cluster", "")]),
    "drain": _SERVER,
    "undrain": _SERVER,
    "resend-job": NeededRights(lambda given: [*_DEAD.find(given), *_JOB.find(given)]),
    "replay-job": NeededRights(
        lambda given: [*_of(Action.OPERATE, topic="topic", group="into")(given), *_JOB.find(given)]
    ),
    "stop-job": _JOB,
    "recall-job": _JOB,
    "give-role": _USERS,
    "add-grant": _USERS,
    "remove-grant": _USERS,
    "remove-user": _USER,
    "set-quota": _USER,
    "revoke-token": _USER,
}
"""Transactions are ended by whose they are, too: their page knows whose."""
_NOTHING = NeededRights(lambda given: [])


def why_not(rights: CallerRights, action: str, arguments: Arguments) -> str:
    """Which right is missing, in words; empty: it may be ordered."""
    needed = ACTION_RIGHTS.get(action, _NOTHING)
    return rights.why_not(needed.find(arguments), needed.also)


def check_action(rights: CallerRights, action: str, arguments: Arguments) -> None:
    """Raises `Forbidden`, also for a dry run."""
    needed = ACTION_RIGHTS.get(action, _NOTHING)
    rights.check(needed.find(arguments), needed.also)
