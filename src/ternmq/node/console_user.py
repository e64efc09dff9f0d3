"""The user as which the console of a node looks at the cluster: made where one is started.

It may describe everything, count delayed messages and keep what people ask for, and nothing else:
what people see and do at the console they see and do by their own rights. Its password is random
and lies in the data directory, for that account only; the console is told the file by its
environment, never the password. Where file and registry do not agree, both are made anew: nothing
is lost by that.
"""

import hmac
import secrets
from pathlib import Path

from msgspec.structs import replace

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig
from ternmq.discovery.access_changes import entry_settings
from ternmq.discovery.hidden_topics import access_topic
from ternmq.meta.registries.registry import NewTopic, Registry
from ternmq.security.access.access_book import AccessEntry, read_entry
from ternmq.security.access.scram import ITERATIONS_MIN, SALT_SIZE, make_verifier
from ternmq.security.access.secret import read_secret
from ternmq.security.private_files import replace_whole
from ternmq.wire.messages.limits import Grant, Verifier
from ternmq.wire.messages.topics import TopicSettings

CONSOLE_USER = "tern-console"
PASSWORD_FILE = "console-password"
GRANTS = (
    Grant(action="describe", resource="*"),
    Grant(action="delay", resource="topic:*"),
    Grant(action="read", resource="document:mask"),
    Grant(action="read", resource="document:request"),
    Grant(action="manage", resource="document:request"),
)


def ensure_console_user(registry: Registry, path: Path, clock: Clock) -> None:
    """Make it, or leave it as it is; blocks."""
    name = access_topic(CONSOLE_USER)
    held = next((topic for topic in registry.topics() if topic.name == name), None)
    entry = None if held is None else read_entry(held.settings.apps)
    if entry is not None and entry.user and _fits(entry.verifier, path):
        if any(each not in entry.grants for each in GRANTS):  # Made by an earlier release.
            registry.update_topic(name, _with_grants)
        return
    password = secrets.token_urlsafe(32)
    # Nobody guesses 256 random bits, however few rounds it takes to try one.
    verifier = make_verifier(password, secrets.token_bytes(SALT_SIZE), iterations=ITERATIONS_MIN)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, password.encode() + b"\n")
    except OSError as error:
        raise BadConfig(
            f"cannot write the console's password to {path}: {error.strerror}"
        ) from error
    made = AccessEntry(user=True, grants=list(GRANTS), verifier=verifier)
    if held is None:
        new = NewTopic(name=name, settings=entry_settings(made), created_at_ms=clock.now_ms())
        registry.create_topics([new])
    else:
        registry.update_topic(name, lambda settings: _with_password(settings, verifier))


def _with_grants(settings: TopicSettings) -> TopicSettings:
    entry = read_entry(settings.apps)
    more = [each for each in GRANTS if each not in entry.grants]
    return entry_settings(replace(entry, grants=[*entry.grants, *more]))


def _with_password(settings: TopicSettings, verifier: Verifier) -> TopicSettings:
    entry = read_entry(settings.apps)
    grants = entry.grants if entry.user else list(GRANTS)
    return entry_settings(replace(entry, user=True, grants=grants, verifier=verifier))


def _fits(verifier: Verifier | None, path: Path) -> bool:
    if verifier is None or verifier.iterations > ITERATIONS_MIN:
        return False
    try:
        password = read_secret(path, "the console's password").reveal()
    except BadConfig:
        return False
    known = make_verifier(password, verifier.salt, iterations=verifier.iterations)
    return hmac.compare_digest(known.stored_key, verifier.stored_key)
