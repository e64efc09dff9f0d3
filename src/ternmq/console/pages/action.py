"""Actions: first what one would do, then, when it was confirmed, what it did."""

from ternmq.api.action_rights import check_action
from ternmq.api.action_steps import Arguments
from ternmq.api.actions import OrderedAction, find_action
from ternmq.console.copy_as import CopyAs, action_as
from ternmq.console.page import AskedUrl, Console, ShownPage, own_path
from ternmq.core.errors import BadRequest

OWN_FIELDS = ("back", "typed")
"""Of the form, not of the action."""


def arguments_of(asked: AskedUrl) -> dict[str, str]:
    return {
        name: value.strip()
        for name, value in asked.query.items()
        if name not in OWN_FIELDS and value.strip()
    }


def back_of(asked: AskedUrl) -> str:
    """Where the person came from: only a path of ours."""
    return own_path(asked.text("back", "/"))


def _copy(console: Console, action: OrderedAction, arguments: Arguments) -> CopyAs:
    return action_as(action, arguments, console.origin, console.url)


async def preview_page(console: Console, asked: AskedUrl) -> ShownPage:
    """A dry run; a form that does it."""
    action, arguments = find_action(asked.names["action"]), arguments_of(asked)
    check_action(console.rights, action.name, arguments)
    would = await action.preview(console.mq, arguments)
    facts = {
        "action": action,
        "arguments": arguments,
        "outcome": would,
        "typed": arguments.get(action.typed, "") if action.typed else "",
        "back": back_of(asked),
        "over": False,
    }
    copy = _copy(console, action, arguments)
    return ShownPage(template="action.html", title=action.title, facts=facts, copy=copy)


async def done_page(console: Console, asked: AskedUrl) -> ShownPage:
    """Do it; where it cannot be undone only with the right word typed."""
    action, arguments = find_action(asked.names["action"]), arguments_of(asked)
    if action.typed and asked.text("typed") != arguments.get(action.typed):
        raise BadRequest(
            f"nothing was done: type {arguments.get(action.typed, action.typed)!r} to confirm"
        )
    check_action(console.rights, action.name, arguments)
    done = await action.run(console.mq, arguments)
    facts = {
        "action": action,
        "arguments": arguments,
        "outcome": done,
        "typed": "",
        "back": back_of(asked),
        "over": True,
    }
    copy = _copy(console, action, arguments)
    return ShownPage(template="action.html", title=action.title, facts=facts, copy=copy)
