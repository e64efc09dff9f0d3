"""Tokens in a registry: made by one meta server, checked by all, revoked for all."""

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig, BadRequest, IdentityNotFound, OverLimit, Unauthorized
from ternmq.meta.access.token_commands import (
    EXPIRES_MS_MAX,
    KEY_FILE,
    TokenCommands,
    own_key,
    own_rights,
)
from ternmq.security.access.access_book import TOKEN_KEYS, TOKENS_MAX, AccessBook, AccessEntry
from ternmq.security.access.token import make_token
from ternmq.wire.messages.limits import (
    AccessTokens,
    Grant,
    TokenCreate,
    TokenCreated,
    TokenFind,
    TokenRevoke,
    UserNamed,
    UserSet,
)
from ternmq.wire.record import Record
from tests.unit.meta.access.test_access_commands import SHOP, AccessMeta, serving_access
from tests.unit.meta.conftest import Opener
from tests.waiting import until

NOW_MS = SystemClock().now_ms
HOUR_MS = 3_600_000
FOR_SHOP = TokenCreate(user="shop", expires_in_ms=HOUR_MS)


def tokens_of(meta: AccessMeta, folder: Path, name: str = "a") -> TokenCommands:
    data_dir = folder / name
    data_dir.mkdir(exist_ok=True)
    return TokenCommands(
        meta.commands, cluster=meta.directory.cluster, data_dir=data_dir, now_ms=NOW_MS
    )


def created(answer: Record) -> TokenCreated:
    assert isinstance(answer, TokenCreated)
    return answer


def listed(answer: Record) -> list[tuple[str, bool]]:
    assert isinstance(answer, AccessTokens)
    return [(token.id, token.revoked) for token in answer.tokens]


async def test_what_one_meta_server_signs_every_server_takes(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as here, serving_access(opener) as there:
        await here.commands.set_user(SHOP)
        first, second = tokens_of(here, tmp_path), tokens_of(there, tmp_path, "b")
        await until(lambda: there.book.user("shop") is not None)
        token = created(await first.create(FOR_SHOP)).token
        other = created(await second.create(FOR_SHOP)).token
        await until(lambda: len(here.book.token_keys.token_keys) == 2)
        await until(lambda: len(there.book.token_keys.token_keys) == 2)
        for book in (here.book, there.book):
            for text in (token, other):
                assert book.token_claims(text, NOW_MS()).sub == "shop"
    async with serving_access(opener) as later:
        assert later.book.token_claims(token, NOW_MS()).sub == "shop"
        assert [each.name for each in later.book.users()] == ["shop"], "keys are no user"


async def test_a_narrowed_token_says_so_and_a_list_never_tells_a_token(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        tokens = tokens_of(meta, tmp_path)
        narrow = [Grant(action="publish", resource="order.*")]
        answer = created(
            await tokens.create(TokenCreate(user="shop", expires_in_ms=HOUR_MS, narrow=narrow))
        )
        lines = [Grant(action="publish", resource="topic:order.*")]
        assert answer.about.narrow == lines
        assert meta.book.token_claims(answer.token, NOW_MS()).narrow == lines
        found = await tokens.find(TokenFind())
        assert listed(found) == [(answer.about.id, False)]
        assert answer.token.rpartition(".")[2] not in repr(found)
        assert listed(await tokens.find(TokenFind(user="bank"))) == []


async def test_one_or_all_tokens_are_revoked(opener: Opener, tmp_path: Path) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        tokens = tokens_of(meta, tmp_path)
        first, second = [created(await tokens.create(FOR_SHOP)) for _ in range(2)]
        done = await tokens.revoke(TokenRevoke(user="shop", id=first.about.id))
        assert listed(done) == [(first.about.id, True), (second.about.id, False)]
        with pytest.raises(Unauthorized, match="it was revoked"):
            meta.book.token_claims(first.token, NOW_MS())
        assert meta.book.token_claims(second.token, NOW_MS())
        assert listed(await tokens.revoke(TokenRevoke(user="shop"))) == []
        with pytest.raises(Unauthorized, match="all of that time"):
            meta.book.token_claims(second.token, NOW_MS())


async def test_whoever_holds_a_token_may_give_it_up_and_nothing_else(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        tokens = tokens_of(meta, tmp_path)
        first = created(await tokens.create(FOR_SHOP))
        second = created(await tokens.create(FOR_SHOP))
        claims = meta.book.token_claims(first.token, NOW_MS())

        assert listed(await tokens.end(meta.book.rights("shop", claims))) == []
        with pytest.raises(Unauthorized):
            meta.book.token_claims(first.token, NOW_MS())
        assert meta.book.token_claims(second.token, NOW_MS()).sub == "shop"
        for rights in (None, meta.book.rights("shop")):
            with pytest.raises(BadRequest, match="did not come by a token"):
                await tokens.end(rights)


def test_a_connection_is_told_every_line_that_counts_for_it() -> None:
    book = AccessBook()
    book.put("shop", AccessEntry(user=True, grants=[Grant(action="read", resource="topic:a")]))
    book.put("sh*", AccessEntry(grants=[Grant(action="read", resource="topic:b", deny=True)]))
    own = own_rights(book.rights("shop"))

    assert [(line.resource, line.deny) for line in own.grants] == [
        ("topic:a", False),
        ("topic:b", True),
    ]
    assert (own.user, own.apps, own.narrow, own.ends_at_ms) == ("shop", ["shop"], None, 0)
    assert own_rights(None).user == ""


async def test_after_a_stolen_key_nothing_that_it_signed_is_taken(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        tokens = tokens_of(meta, tmp_path)
        stolen = own_key(tmp_path / "a" / KEY_FILE)
        before = created(await tokens.create(FOR_SHOP)).token
        seen = meta.book.token_claims(before, NOW_MS())
        alike = replace(meta.book.token_keys, alike="kept")
        await meta.commands.change(TOKEN_KEYS, lambda entry: alike)
        await tokens.revoke(TokenRevoke(user="*"))
        assert meta.book.token_keys.alike == "kept"
        assert meta.book.rights("shop", seen) is None, "its connections are closed"
        (tmp_path / "a" / KEY_FILE).unlink()
        until_ms = NOW_MS() + 2
        await until(lambda: NOW_MS() > until_ms)
        after = created(await tokens.create(FOR_SHOP)).token
        assert meta.book.token_claims(after, NOW_MS()).sub == "shop"
        forged = make_token(replace(seen, iat=NOW_MS() / 1000), stolen)
        for token in (before, forged):
            with pytest.raises(Unauthorized, match="not made by this cluster"):
                meta.book.token_claims(token, NOW_MS())


async def test_a_token_of_a_user_that_was_made_again_is_nobodys(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        token = created(await tokens_of(meta, tmp_path).create(FOR_SHOP)).token
        await meta.commands.remove(UserNamed(name="shop"))
        with pytest.raises(Unauthorized, match="no such user"):
            meta.book.token_claims(token, NOW_MS())
        before = NOW_MS()
        await until(lambda: NOW_MS() > before)
        await meta.commands.set_user(SHOP)
        with pytest.raises(Unauthorized, match="all of that time"):
            meta.book.token_claims(token, NOW_MS())


async def test_a_mistake_makes_no_token(opener: Opener, tmp_path: Path) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(UserSet(name="shop", create=True))
        tokens = tokens_of(meta, tmp_path)
        with pytest.raises(IdentityNotFound, match="tern user add"):
            await tokens.create(TokenCreate(user="bank", expires_in_ms=HOUR_MS))
        for expires in (0, -1, 999, EXPIRES_MS_MAX + 1):
            with pytest.raises(BadRequest, match="366 days"):
                await tokens.create(TokenCreate(user="shop", expires_in_ms=expires))
        deny = Grant(action="read", resource="*", deny=True)
        for narrow in ([], [deny], [Grant(action="fly", resource="*")]):
            with pytest.raises(BadRequest):
                await tokens.create(TokenCreate(user="shop", expires_in_ms=HOUR_MS, narrow=narrow))
        with pytest.raises(BadRequest, match="no token 'x'"):
            await tokens.revoke(TokenRevoke(user="shop", id="x"))
        with pytest.raises(IdentityNotFound):
            await meta.commands.remove(UserNamed(name=TOKEN_KEYS))
        assert meta.book.tokens() == []


async def test_tokens_of_one_user_are_bounded_and_ended_ones_are_forgotten(
    opener: Opener, tmp_path: Path
) -> None:
    async with serving_access(opener) as meta:
        await meta.commands.set_user(SHOP)
        tokens = tokens_of(meta, tmp_path)
        for _ in range(TOKENS_MAX):
            await tokens.create(FOR_SHOP)
        with pytest.raises(OverLimit, match="shorter"):
            await tokens.create(FOR_SHOP)
        late = TokenCommands(
            meta.commands,
            cluster=meta.directory.cluster,
            data_dir=tmp_path / "a",
            now_ms=lambda: NOW_MS() + HOUR_MS,
        )
        await late.create(FOR_SHOP)
        assert len(meta.book.tokens("shop")) == 1


def test_the_key_is_its_owners_and_one_of_use(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    key = own_key(path)
    assert own_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [KEY_FILE]
    path.chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        own_key(path)
    path.chmod(0o600)
    path.write_text("zz\n")
    with pytest.raises(BadConfig, match="no key of 32 bytes"):
        own_key(path)
