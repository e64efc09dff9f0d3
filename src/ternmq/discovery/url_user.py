"""The user in a url (`tern://alice@host`): taken out before anybody looks for servers; pure.

A password does not belong there: urls end up in process lists, logs and error messages.
"""

import re

from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

_USER = re.compile(r"(?P<scheme>terns?://)(?P<who>[^/?@,]*)@(?P<rest>.*)", re.DOTALL)


def split_user(url: str) -> tuple[str, str]:
    """The user, empty where there is none, and the url without it."""
    found = _USER.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return "", url
    if ":" in found["who"]:
        raise BadRequest(
            f"{redacted(url)!r} has a password in it, where others see it: leave it out, and say "
            "it by password=, password_file= or TERN_PASSWORD; and change it"
        )
    return check_name("user", found["who"]), found["scheme"] + found["rest"]


def redacted(url: str) -> str:
    """For people: without what could be a password."""
    found = _USER.fullmatch(url)
    if found is None:
        return url
    user, colon, _ = found["who"].partition(":")
    return f"{found['scheme']}{user}{':***' if colon else ''}@{found['rest']}"
