"""The first admin of a cluster with security on: made once, so that nobody is locked out.

A registry without any user gets one, `admin`, who may do everything; its password lies in the data
directory of the meta server that made it, for that account only. `tern user bootstrap` makes
another password, with nothing but the right to open the registry.
"""

from collections.abc import Callable
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.core.log import get_logger
from ternmq.discovery.access_changes import entry_of
from ternmq.discovery.hidden_topics import access_identity
from ternmq.meta.access.access_commands import ADMIN, ADMIN_FILE, make_admin, make_alike
from ternmq.meta.registries.registry import Registry
from ternmq.node.config import NodeConfig
from ternmq.node.console_user import PASSWORD_FILE, ensure_console_user
from ternmq.security.access.access_book import AccessBook

BOOTSTRAP = "tern user bootstrap"

log = get_logger()


def with_admin(
    open_registry: Callable[[], Registry],
    config: NodeConfig,
    clock: Clock,
    *,
    console: bool = False,
) -> Callable[[], Registry]:
    """The registry, once it has an administrator; `console`: and a user of the console beside the
    node. Blocks."""

    def opened() -> Registry:
        registry = open_registry()
        try:
            ensure_admin(registry, config.data_dir / ADMIN_FILE, clock)
            make_alike(registry, now_ms=clock.now_ms())
            if console:
                ensure_console_user(registry, config.data_dir / PASSWORD_FILE, clock)
        except BaseException:
            registry.close()
            raise
        return registry

    return opened


def ensure_admin(registry: Registry, path: Path, clock: Clock) -> None:
    """Make the first one, or say what to do where nobody may grant."""
    book = AccessBook()
    for topic in registry.topics():
        entry = entry_of(topic)
        if entry is not None:
            book.put(access_identity(topic.name), entry)
    users = [each.name for each in book.users() if each.user]
    if not users and make_admin(registry, path, now_ms=clock.now_ms()):
        log.warning(
            "the first admin was made: log in as this user, with the password in this file",
            user=ADMIN,
            password_file=str(path),
        )
    elif users and not any(_may_grant(book, name) for name in users):
        log.error("nobody may grant rights, so nobody can be given any", run=BOOTSTRAP)


def _may_grant(book: AccessBook, name: str) -> bool:
    rights = book.rights(name)
    return rights is not None and rights.may_grant
