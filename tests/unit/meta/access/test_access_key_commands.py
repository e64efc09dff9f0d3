"""Access keys in a registry: their secrets are told twice, and shown to nobody else."""

from pathlib import Path

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadName, BadRequest, IdentityNotFound, OverLimit
from ternmq.discovery.hidden_topics import access_key_topic
from ternmq.meta.access import access_key_commands
from ternmq.meta.access.access_key_commands import KEYS_MAX, AccessKeyCommands
from ternmq.wire.messages.limits import (
    AccessKey,
    AccessKeyFind,
    AccessKeyOpen,
    AccessKeys,
    AccessKeySet,
    OpenedKey,
    TokenRevoke,
    UserNamed,
    UserSet,
)
from ternmq.wire.record import Record
from tests.unit.meta.access.test_access_commands import SHOP, AccessMeta, serving_access
from tests.unit.meta.access.test_token_commands import tokens_of
from tests.unit.meta.conftest import Opener
from tests.waiting import until

NOW_MS = SystemClock().now_ms
MAKE = AccessKeySet(user="shop")


def keys_of(meta: AccessMeta, folder: Path) -> AccessKeyCommands:
    return AccessKeyCommands(meta.directory, meta.commands, tokens_of(meta, folder), now_ms=NOW_MS)


def listed(answer: Record) -> list[AccessKey]:
    assert isinstance(answer, AccessKeys)
    return answer.keys


def opened(answer: Record) -> OpenedKey:
    assert isinstance(answer, OpenedKey)
    return answer


def found_on_disk(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("registry.db*") if secret.encode() in path.read_bytes()]


async def test_a_secret_is_told_to_its_maker_and_to_gateways_only(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        keys = keys_of(meta, tmp_path)
        [made] = listed(await keys.set(MAKE))
        [other] = listed(await keys.set(MAKE))

        found = opened(await keys.open(AccessKeyOpen(id=made.id)))

        assert len(made.secret) == 40
        assert made.secret != other.secret
        assert (found.key.user, found.key.secret) == ("shop", made.secret)
        assert meta.book.token_claims(found.token, NOW_MS()).sub == "shop"
        shown = listed(await keys.find(AccessKeyFind(user="shop")))
        assert [each.id for each in shown] == [made.id, other.id]
        assert not any(each.secret for each in shown)
        assert listed(await keys.find(AccessKeyFind(user="other"))) == []


async def test_a_gateway_keeps_its_token_until_it_is_old_or_revoked(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        keys = keys_of(meta, tmp_path)
        [made] = listed(await keys.set(MAKE))
        first = opened(await keys.open(AccessKeyOpen(id=made.id)))
        await until(lambda: len(meta.book.tokens("shop")) == 1)

        again = opened(await keys.open(AccessKeyOpen(id=made.id, token_id=first.token_id)))
        assert (again.token, again.token_id) == ("", first.token_id)

        await tokens_of(meta, tmp_path).revoke(TokenRevoke(user="shop", id=first.token_id))
        await until(lambda: meta.book.tokens("shop")[0].revoked)
        third = opened(await keys.open(AccessKeyOpen(id=made.id, token_id=first.token_id)))
        assert third.token
        assert third.token_id != first.token_id


async def test_a_removed_key_is_gone_with_its_secret(opener: Opener, tmp_path: Path) -> None:
    """Rows of deleted topics stay in a registry: what was secret is overwritten."""
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        keys = keys_of(meta, tmp_path)
        [made] = listed(await keys.set(MAKE))
        with pytest.raises(BadRequest, match="has no access key"):
            await keys.set(AccessKeySet(user="shop", remove="AK" + "0" * 16))

        assert listed(await keys.set(AccessKeySet(user="shop", remove=made.id))) == []

        with pytest.raises(IdentityNotFound):
            await keys.open(AccessKeyOpen(id=made.id))
        assert meta.directory.topic(access_key_topic(made.id)) is None
    assert not found_on_disk(tmp_path, made.secret)


async def test_a_key_is_of_no_other_user_and_of_no_later_one_of_that_name(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        await meta.commands.set_user(UserSet(name="pay", create=True))
        keys = keys_of(meta, tmp_path)
        [made] = listed(await keys.set(MAKE))

        with pytest.raises(BadRequest, match="'pay' has no access key"):
            await keys.set(AccessKeySet(user="pay", remove=made.id))
        await meta.commands.remove(UserNamed(name="shop"))
        await until(lambda: meta.book.user("shop") is None)
        with pytest.raises(IdentityNotFound):
            await keys.open(AccessKeyOpen(id=made.id))
        await meta.commands.set_user(SHOP)
        await until(lambda: meta.book.user("shop") is not None)
        with pytest.raises(IdentityNotFound):
            await keys.open(AccessKeyOpen(id=made.id))


async def test_users_have_so_many_keys_and_no_more(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        keys = keys_of(meta, tmp_path)
        for name, kind in (("nobody", IdentityNotFound), ("%x", BadName), ("", BadName)):
            with pytest.raises(kind):
                await keys.set(AccessKeySet(user=name))
        for _ in range(KEYS_MAX):
            await keys.set(MAKE)
        with pytest.raises(OverLimit, match="20 access keys of at most 20"):
            await keys.set(MAKE)
        await meta.commands.set_user(UserSet(name="pay", create=True))
        monkeypatch.setattr(access_key_commands, "ALL_KEYS_MAX", KEYS_MAX)
        with pytest.raises(OverLimit, match="all users 20 of 20"):
            await keys.set(AccessKeySet(user="pay"))
