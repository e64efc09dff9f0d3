"""What people order: one table of actions for the pages and the API.

An `OrderedAction` knows its name, what it needs, whether it can be undone, and three things: what
it would do (`preview`, which changes nothing), doing it (`run`), and how the same is said with the
command line. Arguments come from a form or from JSON and are texts; a wrong one is a `BadRequest`
with the words to write instead. What cannot be undone needs the name of the thing, typed.
"""

from dataclasses import dataclass

from ternmq.api import access_steps
from ternmq.api.action_steps import (
    ActionDone,
    ActionStep,
    Arguments,
    delayed_step,
    delete_group,
    delete_topic,
    disconnect,
    drain_step,
    group_switch,
    half_step,
    hand_over,
    letters_step,
    promote,
    recall_letters,
    reset_group,
    resume_key,
    retry_group,
    set_weight,
    topic_switch,
)
from ternmq.api.job_steps import recall_job, replay_job, resend_job, stop_job
from ternmq.client.client import Client
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedAction:
    """One thing that can be ordered."""

    name: str
    title: str
    needs: tuple[str, ...]
    step: ActionStep
    typed: str = ""
    """The argument whose value a person types, as this cannot be undone."""
    cli: str = ""
    """The same with the command line; `{name}` stands for arguments."""

    def check(self, arguments: Arguments) -> None:
        for name in self.needs:
            if not arguments.get(name):
                raise BadRequest(f"{self.name} needs {name}")
        for name in ("topic", "group"):
            if name in self.needs:
                check_name(name, arguments[name])

    async def preview(self, mq: Client, arguments: Arguments) -> ActionDone:
        """What it would do; nothing is changed."""
        self.check(arguments)
        return await self.step(mq, arguments, True)

    async def run(self, mq: Client, arguments: Arguments) -> ActionDone:
        self.check(arguments)
        return await self.step(mq, arguments, False)


def find_action(name: str) -> OrderedAction:
    try:
        return ACTIONS[name]
    except KeyError:
        raise BadRequest(
            f"there is no action {name[:40]!r}; there are: {', '.join(ACTIONS)}"
        ) from None


_ALL = (
    OrderedAction(
        name="pause-topic",
        title="Pause sending",
        needs=("topic",),
        step=topic_switch(
            "paused", True, "sending to {} would be refused; consuming goes on", "{} is paused"
        ),
        cli="tern topic pause {topic}",
    ),
    OrderedAction(
        name="resume-topic",
        title="Resume sending",
        needs=("topic",),
        step=topic_switch(
            "paused", False, "{} would take messages again", "{} takes messages again"
        ),
        cli="tern topic resume {topic}",
    ),
    OrderedAction(
        name="pause-consuming",
        title="Pause consuming",
        needs=("topic",),
        step=topic_switch(
            "consume_paused",
            True,
            "nothing of {} would be handed out to any group",
            "consuming {} is paused",
        ),
        cli="tern topic pause {topic} --consuming",
    ),
    OrderedAction(
        name="resume-consuming",
        title="Resume consuming",
        needs=("topic",),
        step=topic_switch(
            "consume_paused", False, "{} would be handed out again", "{} is handed out again"
        ),
        cli="tern topic resume {topic} --consuming",
    ),
    OrderedAction(
        name="delete-topic",
        title="Delete topic",
        needs=("topic",),
        step=delete_topic,
        typed="topic",
        cli="tern topic delete {topic}",
    ),
    OrderedAction(
        name="pause-group",
        title="Pause group",
        needs=("topic", "group"),
        step=group_switch(
            True, "nothing would be handed out to {}; acks and retries go on", "{} is paused"
        ),
        cli="tern group pause {topic} {group}",
    ),
    OrderedAction(
        name="resume-group",
        title="Resume group",
        needs=("topic", "group"),
        step=group_switch(False, "{} would be handed messages again", "{} goes on"),
        cli="tern group resume {topic} {group}",
    ),
    OrderedAction(
        name="reset-group",
        title="Reset position",
        needs=("topic", "group", "start"),
        step=reset_group,
        typed="group",
        cli="tern group reset {topic} {group} --to {start}",
    ),
    OrderedAction(
        name="retry-group",
        title="Retry now",
        needs=("topic", "group"),
        step=retry_group,
        cli="tern group reset {topic} {group} --waiting",
    ),
    OrderedAction(
        name="resume-key",
        title="Let key go on",
        needs=("topic", "group", "key"),
        step=resume_key,
        cli="tern group resume {topic} {group} --key {key}",
    ),
    OrderedAction(
        name="delete-group",
        title="Delete group",
        needs=("topic", "group"),
        step=delete_group,
        typed="group",
        cli="tern group delete {topic} {group}",
    ),
    OrderedAction(
        name="resend-dead",
        title="Send again",
        needs=("group", "ids"),
        step=letters_step("resend", dead=True),
        cli="tern dead resend {group} --id {ids}",
    ),
    OrderedAction(
        name="delete-dead",
        title="Delete letters",
        needs=("group", "ids"),
        step=letters_step("delete", dead=True),
        typed="group",
        cli="tern dead delete {group} --id {ids}",
    ),
    OrderedAction(
        name="resend-refused",
        title="Send to the topic",
        needs=("topic", "ids"),
        step=letters_step("resend", dead=False),
        cli="tern dead resend --topic {topic} --id {ids}",
    ),
    OrderedAction(
        name="delete-refused",
        title="Delete refused",
        needs=("topic", "ids"),
        step=letters_step("delete", dead=False),
        typed="topic",
        cli="tern dead delete --topic {topic} --id {ids}",
    ),
    OrderedAction(
        name="cancel-delayed",
        title="Cancel",
        needs=("ids",),
        step=delayed_step("cancel", "would never be handed out"),
        cli="tern delay cancel {ids}",
    ),
    OrderedAction(
        name="move-delayed",
        title="Move",
        needs=("ids", "at"),
        step=delayed_step("reschedule", "would be due at"),
        cli="tern delay reschedule {ids} --at {at}",
    ),
    OrderedAction(
        name="fire-delayed",
        title="Send now",
        needs=("ids",),
        step=delayed_step("fire", "would go out at once"),
        cli="tern delay fire {ids}",
    ),
    OrderedAction(
        name="commit-half",
        title="Commit",
        needs=("transaction",),
        step=half_step("commit", "would become visible to every group"),
        cli="tern half commit {transaction}",
    ),
    OrderedAction(
        name="rollback-half",
        title="Roll back",
        needs=("transaction",),
        step=half_step("rollback", "would never be seen by anybody"),
        typed="transaction",
        cli="tern half rollback {transaction}",
    ),
    OrderedAction(
        name="recall-dead",
        title="Take back",
        needs=("group", "topic"),
        step=recall_letters,
        cli="tern dead recall {group} --topic {topic}",
    ),
    OrderedAction(
        name="resend-job",
        title="Send again as a job",
        needs=("group",),
        step=resend_job,
        cli="tern jobs start resend group={group}",
    ),
    OrderedAction(
        name="replay-job",
        title="Replay as a job",
        needs=("topic", "into", "start"),
        step=replay_job,
        cli="tern jobs start replay topic={topic} into={into} start={start}",
    ),
    OrderedAction(
        name="stop-job",
        title="Stop job",
        needs=("job",),
        step=stop_job,
        cli="tern jobs stop {job}",
    ),
    OrderedAction(
        name="recall-job",
        title="Take back",
        needs=("job",),
        step=recall_job,
        cli="tern jobs recall {job}",
    ),
    OrderedAction(
        name="disconnect",
        title="Hang up",
        needs=("session",),
        step=disconnect,
        cli="tern clients disconnect {session}",
    ),
    OrderedAction(
        name="hand-over",
        title="Hand over",
        needs=("broker_group",),
        step=hand_over,
        cli="tern broker handover {broker_group}",
    ),
    OrderedAction(
        name="promote",
        title="Let it lead",
        needs=("broker_group", "member"),
        step=promote,
        cli="tern broker promote {broker_group} {member} --force",
    ),
    OrderedAction(
        name="set-weight",
        title="Set weight",
        needs=("broker_group", "weight"),
        step=set_weight,
        cli="tern broker weight {broker_group} {weight}",
    ),
    OrderedAction(
        name="drain",
        title="Drain",
        needs=("broker_group",),
        step=drain_step(False, "producers move away from {}; what is there is still handed out"),
        cli="tern broker drain {broker_group}",
    ),
    OrderedAction(
        name="undrain",
        title="Take messages again",
        needs=("broker_group",),
        step=drain_step(True, "producers use {} again"),
        cli="tern broker drain {broker_group} --undo",
    ),
    OrderedAction(
        name="give-role",
        title="Give role",
        needs=("user", "role", "topics"),
        step=access_steps.give_role,
        cli="tern grant list {user}",
    ),
    OrderedAction(
        name="add-grant",
        title="Add line",
        needs=("user", "right", "resource"),
        step=access_steps.grant_step(remove=False),
        cli="tern grant add {user} {right} {resource}",
    ),
    OrderedAction(
        name="remove-grant",
        title="Take line away",
        needs=("user", "right", "resource"),
        step=access_steps.grant_step(remove=True),
        cli="tern grant remove {user} {right} {resource}",
    ),
    OrderedAction(
        name="remove-user",
        title="Remove user",
        needs=("user",),
        step=access_steps.remove_user,
        typed="user",
        cli="tern user remove {user}",
    ),
    OrderedAction(
        name="set-quota",
        title="Set quota",
        needs=("user", "limit", "value"),
        step=access_steps.set_quota,
        cli="tern quota list",
    ),
    OrderedAction(
        name="revoke-token",
        title="Revoke",
        needs=("user",),
        step=access_steps.revoke_token,
        typed="user",
        cli="tern token revoke {user}",
    ),
)
ACTIONS = {action.name: action for action in _ALL}
