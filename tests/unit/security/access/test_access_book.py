"""The book of identities: lines as they are stored, patterns, versions."""

import pytest

from ternmq.core.errors import BadRequest, Corrupt, Unauthorized
from ternmq.security.access.access_book import (
    GRANTS_MAX,
    TOKEN_KEYS,
    AccessBook,
    AccessEntry,
    read_entry,
)
from ternmq.security.access.scram import make_verifier
from ternmq.security.access.token import ISSUER, TokenClaims, key_id, make_token, public_key
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import AccessToken, Grant

PUBLISH = Grant(action="publish", resource="topic:order.*")


def test_an_entry_is_read_as_it_was_written_and_later_fields_are_passed_over() -> None:
    entry = AccessEntry(
        user=True,
        verifier=make_verifier("correct horse", bytes(16), iterations=4096),
        apps=["shop", "shop-*"],
        grants=[PUBLISH],
        connections_max=7,
    )

    assert read_entry([entry.line()]) == entry
    assert read_entry(['{"user": true, "face": "round"}']) == AccessEntry(user=True)
    assert read_entry([]) == AccessEntry()


@pytest.mark.parametrize("line", ["", "x", "[]", '{"user": 7}', '{"grants": [[1]]}'])
def test_an_entry_that_cannot_be_read_is_told(line: str) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        read_entry([line])


def test_rights_are_those_of_the_user_and_of_every_pattern_that_covers_it() -> None:
    book = AccessBook()
    book.put("shop-eu", AccessEntry(user=True))
    book.put("shop-*", AccessEntry(grants=[PUBLISH]))
    book.put(
        "*", AccessEntry(grants=[Grant(action="publish", resource="topic:order.x", deny=True)])
    )
    book.put("other", AccessEntry(user=True, grants=[Grant(action="*", resource="*")]))
    found = book.rights("shop-eu")

    assert found is not None
    assert found.apps == ["shop-eu"]
    assert found.may(Action.PUBLISH, "topic", "order.new")
    assert not found.may(Action.PUBLISH, "topic", "order.x")
    assert not found.may(Action.READ, "topic", "order.new")
    assert book.rights("shop-us") is None, "a pattern is nobody"
    assert book.rights("shop-*") is None


def test_every_change_is_a_version_and_is_told_and_none_is_not() -> None:
    book, told = AccessBook(), []
    book.follow(lambda: told.append(book.version))
    entry = AccessEntry(user=True)
    book.put("a", entry)
    book.put("a", AccessEntry(user=True))
    book.put("b", None)
    book.put("a", None)

    assert told == [1, 2]
    assert book.user("a") is None


def test_lines_are_added_once_taken_away_and_bounded() -> None:
    entry = AccessEntry(user=True).changed(PUBLISH, remove=False)

    assert entry.changed(PUBLISH, remove=False).grants == [PUBLISH]
    assert entry.changed(PUBLISH, remove=True).grants == []
    with pytest.raises(BadRequest, match="no line allow publish"):
        AccessEntry().changed(PUBLISH, remove=True)
    many = [Grant(action="read", resource=f"topic:t{n}") for n in range(GRANTS_MAX)]
    with pytest.raises(BadRequest, match="at most"):
        AccessEntry(grants=many).changed(PUBLISH, remove=False)


def test_what_is_shown_of_a_user_has_nothing_of_its_password() -> None:
    verifier = make_verifier("correct horse", bytes(16), iterations=4096)
    shown = AccessEntry(user=True, verifier=verifier).shown("shop")

    assert shown.methods == ["scram"]
    assert verifier.stored_key.hex() not in repr(shown)
    assert str(verifier.stored_key) not in repr(shown)


NOW_MS = 10_000_000
SIGNER = bytes(range(32))
BEFORE = {"iat": 9_000.0, "exp": 20_000.0}
REVOKED = AccessToken(id="1", user="shop", issued_at_ms=0, expires_at_ms=0, revoked=True)


def a_token(**claims: object) -> str:
    given = {"iss": ISSUER, "sub": "shop", "aud": "c1", "jti": "1", **BEFORE, **claims}
    return make_token(TokenClaims(**given), SIGNER)  # type: ignore[arg-type]


def a_book(entry: AccessEntry | None, **shared: object) -> AccessBook:
    public = public_key(SIGNER)
    keys = {"token_keys": {key_id(public): public}, "cluster": "c1", **shared}
    book = AccessBook()
    book.put(TOKEN_KEYS, AccessEntry(**keys))  # type: ignore[arg-type]
    book.put("shop", entry)
    return book


GOOD_USER = AccessEntry(user=True)


@pytest.mark.parametrize(
    ("why", "text", "book"),
    [
        ("in this moment", a_token(exp=10_000.0), a_book(GOOD_USER)),
        ("a millisecond ago", a_token(exp=9_999.999), a_book(GOOD_USER)),
        ("an hour ago", a_token(exp=6_400.0), a_book(GOOD_USER)),
        ("before it began", a_token(exp=8_000.0), a_book(GOOD_USER)),
        ("in 1970", a_token(exp=0.0), a_book(GOOD_USER)),
        ("before 1970", a_token(exp=-1.0), a_book(GOOD_USER)),
        ("it begins later", a_token(iat=11_000.0), a_book(GOOD_USER)),
        ("it was revoked", a_token(), a_book(AccessEntry(user=True, tokens=[REVOKED]))),
        ("all were", a_token(), a_book(AccessEntry(user=True, tokens_since_ms=9_000_001))),
        ("everybody's were", a_token(), a_book(GOOD_USER, tokens_since_ms=9_000_001)),
        ("its key is gone", a_token(), a_book(GOOD_USER, token_keys={})),
        ("its user is gone", a_token(), a_book(None)),
    ],
)
def test_more_than_ten_tokens_that_have_ended_are_of_nobody(
    why: str, text: str, book: AccessBook
) -> None:
    with pytest.raises(Unauthorized):
        book.token_claims(text, NOW_MS)
    assert a_book(GOOD_USER).token_claims(a_token(), NOW_MS).sub == "shop", why
