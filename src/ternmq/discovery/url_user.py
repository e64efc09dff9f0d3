"""The user in a url (`tern://alice@host`): taken out before anybody looks for servers; pure.

A password does not belong there: urls end up in process lists, logs and error messages. One that is
there is refused and never repeated, whatever letters it has: all that stands before the last `@`
could be one, and so could every value behind `?` that is not a file of ours.
"""

import re

from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.security.access.secret import HIDDEN

FILE_SETTINGS = ("ca", "cert", "key")
_SCHEME = re.compile(r"terns?://")
_ANY_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?")
_FILES = re.compile(rf"[^@?]*\?(?:{'|'.join(FILE_SETTINGS)})=.*", re.DOTALL)
"""Servers and files: an `@` behind that is in the name of a file."""
_NO_NAME = re.compile(r"[:/?@,]")


def split_user(url: str) -> tuple[str, str]:
    """The user, empty where there is none, and the url without it."""
    scheme = _SCHEME.match(url) if isinstance(url, str) else None
    if scheme is None:
        return "", url
    rest = url[scheme.end() :]
    who, at, places = rest.partition("@")
    if not at or _FILES.fullmatch(rest):
        return "", url
    if not _NO_NAME.search(who) and ("@" not in places or _FILES.fullmatch(places)):
        return check_name("user", who), scheme[0] + places
    raise BadRequest(
        f"{redacted(url)!r} has a password in it, where others see it, or a user that is not one "
        "name in front of all servers: leave it out, and say it by password=, password_file= or "
        "TERN_PASSWORD; and change it"
    )


def redacted(url: str) -> str:
    """For people: without what could be a password."""
    scheme = _ANY_SCHEME.match(url)
    assert scheme is not None, "it matches nothing as well"
    who, at, places = url[scheme.end() :].rpartition("@")
    if at and _NO_NAME.search(who):
        who = f"{_NO_NAME.split(who, maxsplit=1)[0]}:{HIDDEN}"
    servers, mark, query = places.partition("?")
    return f"{scheme[0]}{who}{at}{servers}{mark}{'&'.join(map(_setting, query.split('&')))}"


def _setting(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not text or (equals and name in FILE_SETTINGS):
        return text
    return f"{name}={HIDDEN}" if equals else HIDDEN
