"""What each action on users does: roles, grants, quotas, tokens; one function each.

As the steps of `api/action_steps.py`: a dry run says what would happen. No password and no token is
an argument of an action: arguments stand in addresses and logs.
"""

from ternmq.api.action_steps import ActionDone, ActionStep, Arguments
from ternmq.client.client import Client
from ternmq.core.errors import BadRequest
from ternmq.security.access.access_book import shown
from ternmq.security.access.rights import ANY, check_grant
from ternmq.security.access.roles import lines_of
from ternmq.wire.messages.limits import Grant


async def give_role(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    user, role = arguments["user"], arguments["role"]
    lines = lines_of(role, arguments["topics"], arguments.get("groups") or ANY)
    held = (await mq.admin.user(user)).grants
    new = [line for line in lines if line not in held]
    if not dry:
        for line in new:
            await mq.admin.grant(user, line.action, line.resource)
    word = "would become" if dry else "is"
    text = f"{user} {word} {role} of {arguments['topics']}: {len(new)} new lines"
    return ActionDone(text=text, facts={"lines": [shown(line) for line in lines]}, done=not dry)


def grant_step(*, remove: bool) -> ActionStep:
    async def step(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
        user, deny = arguments["user"], arguments.get("deny") == "yes"
        line = check_grant(
            Grant(action=arguments["right"], resource=arguments["resource"], deny=deny)
        )
        if not dry:
            change = mq.admin.revoke if remove else mq.admin.grant
            await change(user, line.action, line.resource, deny)
        verb = ("would lose" if dry else "lost") if remove else ("would get" if dry else "has")
        return ActionDone(text=f"{user} {verb} the line: {shown(line)}", done=not dry)

    return step


async def remove_user(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    user = arguments["user"]
    found = await mq.admin.user(user)
    if not dry:
        await mq.admin.remove_user(user)
    word = "would be" if dry else "is"
    text = f"{user} {word} removed with {len(found.grants)} lines; its connections end at once"
    return ActionDone(text=text, done=not dry)


async def set_quota(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    user, name, text = arguments["user"], arguments["limit"], arguments["value"]
    words = {"none": 0, "default": -1}
    if text not in words and not (text.isascii() and text.isdigit()):
        raise BadRequest(f"value is {text[:40]!r}; it is a number, none, or default")
    value = words[text] if text in words else int(text[:18])
    if not dry:
        await mq.admin.set_quota(user, {name: value})
    word = "would be" if dry else "is"
    return ActionDone(text=f"{name} of {user} {word} {text}, at each server", done=not dry)


async def revoke_token(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    user, id = arguments["user"], arguments.get("token", "")
    held = [each.id for each in await mq.admin.tokens(user) if not each.revoked]
    if id and id not in held:
        raise BadRequest(f"{user} has no token {id[:40]!r} that has not ended")
    if not dry:
        await mq.admin.revoke_tokens(user, id)
    what = f"the token {id} of {user}" if id else f"all {len(held)} tokens of {user}"
    word = "would be" if dry else "is"
    return ActionDone(text=f"{what} {word} good for nothing any more", done=not dry)
