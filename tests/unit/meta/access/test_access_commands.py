"""Users and grants in a registry: made once, changed by whoever asks, heard by other meta servers.

Runs against SQLite here and against PostgreSQL, MariaDB and ZooKeeper in
`tests/integration/cluster/test_registries.py`.
"""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from ternmq.core.clock import SystemClock
from ternmq.core.errors import AlreadyExists, BadName, BadRequest, IdentityNotFound
from ternmq.discovery.access_changes import follow_access
from ternmq.meta.access.access_commands import ADMIN, AccessCommands, make_admin, make_alike
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.security.access.access_book import TOKEN_KEYS, AccessBook
from ternmq.security.access.scram import client_proof, make_verifier, proves, salted
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import Grant, GrantSet, User, UserFind, UserNamed, Users, UserSet
from tests.unit.meta.conftest import Opener
from tests.waiting import until

VERIFIER = make_verifier("correct horse", bytes(16), iterations=4096)
SHOP = UserSet(name="shop", create=True, verifier=VERIFIER)
ORDERS = Grant(action="publish", resource="order.*")


@dataclass(frozen=True)
class AccessMeta:
    """What a meta server has of users."""

    directory: MetaDirectory
    book: AccessBook
    commands: AccessCommands


@asynccontextmanager
async def serving_access(opener: Opener) -> AsyncIterator[AccessMeta]:
    async with serving_directory(opener, clock=SystemClock()) as directory:
        book = AccessBook()
        follow_access(book, directory)
        yield AccessMeta(
            directory, book, AccessCommands(directory, book, now_ms=SystemClock().now_ms)
        )


def may(book: AccessBook, name: str, action: Action, topic: str) -> bool:
    rights = book.rights(name)
    return rights is not None and rights.may(action, "topic", topic)


async def test_a_user_is_made_changed_and_known_after_a_restart(opener: Opener) -> None:
    async with serving_access(opener) as meta:
        made = await meta.commands.set_user(SHOP)
        assert made == User(name="shop", user=True, apps=["shop"], grants=[], methods=["scram"])
        await meta.commands.grant(GrantSet(identity="shop", grant=ORDERS))
        await meta.commands.set_user(UserSet(name="shop", apps=["shop", "web-*"]))
        await meta.commands.set_user(UserSet(name="shop", connections_max=5))
    async with serving_access(opener) as meta:
        [shop] = meta.book.users()
        assert shop.apps == ["shop", "web-*"]
        assert shop.grants == [Grant(action="publish", resource="topic:order.*")]
        assert shop.connections_max == 5
        entry = meta.book.user("shop")
        assert entry is not None
        assert entry.verifier == VERIFIER


async def test_what_one_meta_server_changes_the_other_hears(opener: Opener) -> None:
    async with serving_access(opener) as here, serving_access(opener) as there:
        await here.commands.set_user(SHOP)
        await until(lambda: there.book.user("shop") is not None)
        await there.commands.grant(GrantSet(identity="shop", grant=ORDERS))
        await until(lambda: may(here.book, "shop", Action.PUBLISH, "order.new"))
        await here.commands.grant(
            GrantSet(identity="sh*", grant=Grant(action="publish", resource="order.x", deny=True))
        )
        await until(lambda: not may(there.book, "shop", Action.PUBLISH, "order.x"))
        await there.commands.grant(GrantSet(identity="shop", grant=ORDERS, remove=True))
        await until(lambda: not may(here.book, "shop", Action.PUBLISH, "order.new"))
        await here.commands.remove(UserNamed(name="shop"))
        await until(lambda: there.book.user("shop") is None)


async def test_a_user_that_is_made_again_begins_with_nothing(opener: Opener) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        await meta.commands.grant(GrantSet(identity="shop", grant=ORDERS))
        await meta.commands.remove(UserNamed(name="shop"))
        with pytest.raises(IdentityNotFound):
            await meta.commands.remove(UserNamed(name="shop"))
        await meta.commands.set_user(SHOP)

        assert not may(meta.book, "shop", Action.PUBLISH, "order.new")


async def test_a_password_is_changed_and_the_old_one_is_of_no_use(opener: Opener) -> None:
    other = make_verifier("battery staple", bytes(16), iterations=4096)
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        await meta.commands.set_user(UserSet(name="shop", verifier=other))
        entry = meta.book.user("shop")
        assert entry is not None
        assert entry.verifier == other


async def test_a_mistake_changes_nothing(opener: Opener) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        before = meta.book.users()
        with pytest.raises(AlreadyExists, match="tern user password"):
            await meta.commands.set_user(SHOP)
        for name in ("nobody", "other"):
            with pytest.raises(IdentityNotFound, match="tern user add"):
                await meta.commands.set_user(UserSet(name=name, apps=["a"]))
            with pytest.raises(IdentityNotFound):
                await meta.commands.grant(GrantSet(identity=name, grant=ORDERS))
        with pytest.raises(BadName):
            await meta.commands.set_user(UserSet(name="%broker", create=True, verifier=VERIFIER))
        with pytest.raises(BadRequest, match="no action"):
            await meta.commands.grant(
                GrantSet(identity="shop", grant=Grant(action="fly", resource="*"))
            )
        with pytest.raises(BadRequest, match="no line"):
            await meta.commands.grant(GrantSet(identity="shop", grant=ORDERS, remove=True))

        assert meta.book.users() == before
        found = await meta.commands.find(UserFind(name="shop"))
        assert isinstance(found, Users)
        assert found.users == before


async def test_the_first_admin_is_made_once_and_its_password_is_for_its_owner(
    opener: Opener, tmp_path: Path
) -> None:
    path, registry = tmp_path / "first" / "admin-password", opener()
    assert make_admin(registry, path, now_ms=1, iterations=4096)
    password = path.read_text(encoding="ascii").strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not make_admin(registry, tmp_path / "second", now_ms=2, iterations=4096)
    assert not (tmp_path / "second").exists()
    registry.close()
    async with serving_access(opener) as meta:
        rights, entry = meta.book.rights(ADMIN), meta.book.user(ADMIN)
        assert rights is not None
        assert rights.may(Action.GRANT, "user", "")
        assert rights.is_app("tern-cli")
        assert entry is not None
        assert entry.verifier is not None
        key = salted(password, entry.verifier.salt, 4096)
        assert proves(entry.verifier, b"talk", client_proof(key, b"talk"))


async def test_all_servers_make_the_same_salt_for_who_is_not_there(opener: Opener) -> None:
    """Servers with certificates share no secret: by two salts one could tell who is a user."""
    registry = opener()
    make_alike(registry, now_ms=1)
    make_alike(registry, now_ms=2)
    registry.close()
    async with serving_access(opener) as here, serving_access(opener) as there:
        assert len(here.book.token_keys.alike) == 64
        assert here.book.token_keys.alike == there.book.token_keys.alike
        await here.commands.change(TOKEN_KEYS, lambda entry: replace(entry, alike=""))
    registry = opener()
    make_alike(registry, now_ms=3)
    registry.close()
    async with serving_access(opener) as again:
        assert again.book.token_keys.alike
        assert again.book.users() == []


async def test_a_lost_admin_is_made_anew_with_all_rights(opener: Opener, tmp_path: Path) -> None:
    registry = opener()
    make_admin(registry, tmp_path / "one", now_ms=1, iterations=4096)
    registry.close()
    async with serving_access(opener) as meta:
        everything = Grant(action="*", resource="*")
        await meta.commands.grant(GrantSet(identity=ADMIN, grant=everything, remove=True))
        await meta.commands.grant(GrantSet(identity=ADMIN, grant=ORDERS))
    registry = opener()
    assert make_admin(registry, tmp_path / "two", now_ms=2, again=True, iterations=4096)
    registry.close()
    async with serving_access(opener) as meta:
        rights = meta.book.rights(ADMIN)
        assert rights is not None
        assert rights.may(Action.GRANT, "user", "")
        assert len(rights.grants) == 2
    assert (tmp_path / "one").read_text() != (tmp_path / "two").read_text()


async def test_a_user_without_a_password_is_known_by_other_proofs(opener: Opener) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(UserSet(name="machine", create=True))
        [shown] = meta.book.users("machine")
        assert shown.user
        assert shown.methods == []
        assert meta.book.rights("machine") is not None
