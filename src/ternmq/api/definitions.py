"""Topics, groups, limits and documents of a cluster as one file, and such a file put in place.

What is defined is exported, never what is stored: no messages, positions, users or keys, nothing of
ours (`%…`), no jobs and no documents that expire. Settings that are as they always are left out, so
a file says what somebody decided. An import makes what is not there, changes what differs, and
leaves alone what the file does not name; what it would do is planned first, as a list of changes.
A file comes from outside: it is read as hostile.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ternmq.client.admin.merge_answers import merged_groups
from ternmq.client.client import Client
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.core.ids import check_name
from ternmq.jobs.job import JOB_KIND, LEASE_KIND
from ternmq.wire.messages.groups import Group, GroupSet, GroupSettings
from ternmq.wire.messages.limits import AppLimit, LimitSet, TopicSet
from ternmq.wire.messages.topics import TopicSettings

FORMAT = "ternmq-definitions"
VERSION = 1
FILE_SIZE_MAX = 64 * 1024 * 1024
NOT_EXPORTED = frozenset({JOB_KIND, LEASE_KIND})
TOPIC_FIELDS = frozenset(TopicSet.__struct_fields__) - {"name"}
GROUP_FIELDS = frozenset(GroupSet.__struct_fields__) - {"topic", "group"}
LIMIT_FIELDS = frozenset(LimitSet.__struct_fields__) - {"app"}


class TopicDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: dict[str, Any] = {}


class GroupDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    name: str
    settings: dict[str, Any] = {}


class LimitDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    app: str
    limits: dict[str, int] = {}


class DocumentDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    base64: str


class Definitions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file."""

    format: str = FORMAT
    version: int = VERSION
    exported_at: str = ""
    topics: list[TopicDefinition] = []
    groups: list[GroupDefinition] = []
    limits: list[LimitDefinition] = []
    documents: list[DocumentDefinition] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """One thing that an import does."""

    verb: str
    """make, change"""
    kind: str
    """topic, group, limit, document"""
    name: str
    settings: Mapping[str, Any]


def read_definitions(data: bytes) -> Definitions:
    """A file from outside, checked; raises `BadRequest`, `TooLarge`."""
    if len(data) > FILE_SIZE_MAX:
        raise TooLarge(f"a file of definitions has at most {FILE_SIZE_MAX} bytes")
    try:
        found = msgspec.json.decode(data, type=Definitions)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"this is no file of definitions: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        raise BadRequest(
            f"this file is {found.format[:40]!r} version {found.version}; this release reads "
            f"{FORMAT!r} version {VERSION}"
        )
    for topic in found.topics:
        check_name("topic", topic.name)
        _check_fields("topic", topic.name, topic.settings, TOPIC_FIELDS)
    for group in found.groups:
        check_name("topic", group.topic)
        check_name("group", group.name)
        _check_fields("group", group.name, group.settings, GROUP_FIELDS)
    for limit in found.limits:
        check_name("application", limit.app)
        _check_fields("limit", limit.app, limit.limits, LIMIT_FIELDS)
    return found


def _check_fields(kind: str, name: str, given: Iterable[str], known: frozenset[str]) -> None:
    strange = sorted(set(given) - known)
    if strange:
        raise BadRequest(f"{kind} {name!r} has a setting that is not known: {strange[0][:40]!r}")


async def export_definitions(mq: Client, *, now: datetime | None = None) -> Definitions:
    """All that is defined now, by name."""
    topics = [
        TopicDefinition(topic.name, _beyond(topic.settings, TopicSettings(), TOPIC_FIELDS))
        for topic in await mq.admin.topics()
        if not topic.name.startswith("%")
    ]
    groups = [
        GroupDefinition(
            group.topic, group.name, _beyond(group.settings, GroupSettings(), GROUP_FIELDS)
        )
        for group in (await _groups(mq)).values()
    ]
    limits = [
        LimitDefinition(limit.app, _beyond(limit, AppLimit(app=""), LIMIT_FIELDS))
        for limit in await mq.admin.limits()
    ]
    return Definitions(
        exported_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        topics=sorted(topics, key=lambda each: each.name),
        groups=sorted(groups, key=lambda each: (each.topic, each.name)),
        limits=sorted(limits, key=lambda each: each.app),
        documents=[
            DocumentDefinition(kind, name, base64.b64encode(body).decode())
            for (kind, name), body in (await _documents(mq)).items()
        ],
    )


async def plan_import(mq: Client, wanted: Definitions) -> list[DefinitionChange]:
    """What an import would do now; nothing is changed."""
    changes: list[DefinitionChange] = []
    topics = {topic.name: topic.settings for topic in await mq.admin.topics()}
    for topic in wanted.topics:
        held = topics.get(topic.name)
        new = _differing(held, TopicSettings(), topic.settings, TOPIC_FIELDS)
        changes += _change("topic", topic.name, new, there=held is not None)
    groups = await _groups(mq)
    for group in wanted.groups:
        found = groups.get((group.topic, group.name))
        settings = None if found is None else found.settings
        new = _differing(settings, GroupSettings(), group.settings, GROUP_FIELDS)
        name = f"{group.topic}/{group.name}"
        changes += _change("group", name, new, there=found is not None)
    limits = {limit.app: limit for limit in await mq.admin.limits()}
    for limit in wanted.limits:
        new = _differing(limits.get(limit.app), AppLimit(app=""), limit.limits, LIMIT_FIELDS)
        changes += _change("limit", limit.app, new, there=True)
    documents = await _documents(mq)
    for document in wanted.documents:
        held_body = documents.get((document.kind, document.name))
        new = {} if held_body == _body(document) else {"base64": document.base64}
        name = f"{document.kind}/{document.name}"
        changes += _change("document", name, new, there=held_body is not None)
    return changes


async def import_definitions(mq: Client, wanted: Definitions) -> list[DefinitionChange]:
    """Make it so; what was done. May be repeated: what is there already is left as it is."""
    changes = await plan_import(mq, wanted)
    for change in changes:
        await _apply(mq, change)
    return changes


async def _apply(mq: Client, change: DefinitionChange) -> None:
    settings = dict(change.settings)
    if change.kind == "topic":
        if change.verb == "make":
            await mq.admin.create_topic(change.name)
        if settings:
            await mq.admin.set_topic(change.name, **settings)
    elif change.kind == "group":
        topic, _, group = change.name.partition("/")
        if change.verb == "make":
            await mq.admin.create_group(topic, group)
        if settings:
            await mq.admin.set_group(topic, group, **settings)
    elif change.kind == "limit":
        await mq.admin.set_limit(change.name, **settings)
    else:
        kind, _, name = change.name.partition("/")
        await mq.admin.documents.put(kind, name, base64.b64decode(settings["base64"]))


def _change(
    kind: str, name: str, settings: Mapping[str, Any], *, there: bool
) -> list[DefinitionChange]:
    if there and not settings:
        return []
    verb = "change" if there else "make"
    return [DefinitionChange(verb=verb, kind=kind, name=name, settings=settings)]


def _beyond(held: Any, usual: Any, fields: frozenset[str]) -> dict[str, Any]:
    """Settings that are not as they always are."""
    return {
        name: getattr(held, name)
        for name in sorted(fields)
        if getattr(held, name) != getattr(usual, name)
    }


def _differing(
    held: Any, usual: Any, wanted: Mapping[str, Any], fields: frozenset[str]
) -> dict[str, Any]:
    """Settings that have to be set; what a file leaves out is as it always is."""
    now = usual if held is None else held
    return {
        name: value
        for name in sorted(fields)
        if (value := wanted.get(name, getattr(usual, name))) != getattr(now, name)
    }


async def _groups(mq: Client) -> dict[tuple[str, str], Group]:
    """All groups of people, over all broker groups, as they are at this moment."""
    found = [each for each in await mq.admin.groups() if _named(each)]
    return {(each.topic, each.name): each for each in merged_groups(found)}


def _named(group: Group) -> bool:
    ours = group.topic.startswith("%") or group.name.startswith("%")
    return group.ledger.lane == "topic" and not ours


async def _documents(mq: Client) -> dict[tuple[str, str], bytes]:
    found: dict[tuple[str, str], bytes] = {}
    after = ""
    while True:
        page = await mq.admin.documents.page(after=after, bodies=True)
        for each in page.documents:
            if each.kind not in NOT_EXPORTED and not each.expires_at_ms:
                found[each.kind, each.name] = each.body
        after = page.following
        if not after:
            return found


def _body(document: DocumentDefinition) -> bytes:
    try:
        return base64.b64decode(document.base64, validate=True)
    except ValueError:
        raise BadRequest(f"document {document.kind}/{document.name} is not base64") from None
