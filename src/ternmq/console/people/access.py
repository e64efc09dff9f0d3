"""Who may do what: one's own lines for everybody; users, grants, tokens and quotas for who grants.

A password is sent by a form to this page and handed to the cluster as a verifier; a token is shown
once, on the page that answers the form, and kept nowhere. Neither ever stands in an address.
"""

from typing import Any

from ternmq.console.copy_as import CopyAs
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.core.units import parse_duration_ms
from ternmq.security.access.quota import DEFAULT
from ternmq.security.access.rights import ACTIONS_GRANTED
from ternmq.security.access.roles import ROLES
from ternmq.security.access.secret import Secret
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import Quota, User

USERS_SHOWN = 500


def _granting(console: Console, user: str = "") -> None:
    console.rights.check([(Action.GRANT, "user", user)])


async def access_page(console: Console, asked: AskedUrl) -> ShownPage:
    """One's own lines; for who may grant, everybody."""
    rights = console.rights
    if not rights.user:
        raise BadRequest(
            "security is off here, so everybody may do everything: write security = true into the "
            "settings of all servers; the first start then makes an admin"
        )
    like = asked.text("q")
    users = await console.mq.admin.users() if rights.grants else []
    found = [user for user in users if like.lower() in user.name.lower()]
    facts: dict[str, Any] = {
        "own": rights.lines,
        "users": found[:USERS_SHOWN],
        "total": len(found),
        "like": like,
        "roles": ROLES,
    }
    copy = CopyAs(cli=f"tern user list --url {console.url}", python="await mq.admin.users()")
    return ShownPage(
        template="access.html", title="Access", section="access", facts=facts, copy=copy
    )


async def user_page(console: Console, asked: AskedUrl) -> ShownPage:
    """One user: lines, tokens, quota."""
    return await _user_page(console, asked, asked.names["user"])


async def _user_page(console: Console, asked: AskedUrl, name: str, token: str = "") -> ShownPage:
    _granting(console)
    everybody = name == DEFAULT
    user = User(name=name, user=False, apps=[], grants=[])
    if everybody:
        listed = {each.name: each for each in await console.mq.admin.users()}
        user = listed.get(name, user)
    else:
        user = await console.mq.admin.user(name)
    tokens = await console.mq.admin.tokens(name) if user.user else []
    quota = {field: getattr(user.quota, field) for field in Quota.__struct_fields__}
    facts = {
        "user": user,
        "everybody": everybody,
        "tokens": tokens,
        "quota": quota,
        "actions_granted": [str(action) for action in ACTIONS_GRANTED],
        "roles": ROLES,
        "made_token": token,
    }
    copy = CopyAs(
        cli=f"tern grant list {name} --url {console.url}",
        python=f"await mq.admin.user({name!r})",
    )
    title = "Everybody" if everybody else name
    return ShownPage(template="user.html", title=title, section="access", facts=facts, copy=copy)


async def add_user(console: Console, asked: AskedUrl) -> ShownPage:
    """Of the form: a name, and a password or none."""
    name, password = check_name("user", asked.text("user")), asked.query.get("password", "")
    _granting(console, name)
    apps = asked.text("apps").replace(",", " ").split()
    await console.mq.admin.add_user(name, Secret(password) if password else None, apps or None)
    return await _user_page(console, asked, name)


async def make_token(console: Console, asked: AskedUrl) -> ShownPage:
    """Shown on this page, and never again."""
    name = check_name("user", asked.names["user"])
    _granting(console, name)
    expires = parse_duration_ms(asked.text("expires", "8h")) / 1000
    made = await console.mq.admin.create_token(name, expires)
    return await _user_page(console, asked, name, made.token)
