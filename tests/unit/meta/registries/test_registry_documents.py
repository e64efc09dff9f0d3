"""The contract of every registry backend, for documents.

Runs against SQLite here and against PostgreSQL, MariaDB and ZooKeeper in
`tests/integration/cluster/test_registries.py`.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ternmq.core.errors import OverLimit, VersionMismatch
from ternmq.meta.registries import registry as limits
from ternmq.meta.registries.registry import Registry
from ternmq.wire.registry.documents import (
    DOCUMENT_SIZE_MAX,
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)
from tests.unit.meta.conftest import Opener

JOB = DocumentNamed(kind="job", name="resend-1")


def put(
    registry: Registry,
    body: bytes,
    version: int | None = None,
    *,
    name: str = "resend-1",
    now_ms: int = 1_000,
    expires_in_ms: int = 0,
    request: str = "",
) -> Document:
    wanted = DocumentPut(
        kind="job",
        name=name,
        body=body,
        version=version,
        expires_in_ms=expires_in_ms,
        request=request,
    )
    return registry.put_document(wanted, now_ms=now_ms)


def names(registry: Registry, *, now_ms: int = 1_000, **wanted: object) -> list[tuple[str, str]]:
    found = registry.documents(DocumentQuery(**wanted), now_ms=now_ms)  # type: ignore[arg-type]
    return [(each.kind, each.name) for each in found]


def test_a_document_is_replaced_only_by_who_knew_it(registry: Registry, opener: Opener) -> None:
    other = opener()
    try:
        assert registry.document(JOB, now_ms=1) is None
        first = put(registry, b"one", 0)
        with pytest.raises(VersionMismatch) as there:
            put(other, b"two", 0)
        assert there.value.details["version"] == first.version
        second = put(other, b"two", first.version)
        with pytest.raises(VersionMismatch):
            put(registry, b"three", first.version)
        with pytest.raises(VersionMismatch):
            put(registry, b"three", second.version, name="another")
        assert second.version > first.version
        assert other.document(JOB, now_ms=1) == second == registry.document(JOB, now_ms=1)
        assert (second.body, second.size, second.changed_at_ms) == (b"two", 3, 1_000)
        third = put(registry, b"whatever it was")
        assert third.version > second.version
    finally:
        other.close()
    reopened = opener()
    try:
        assert reopened.document(JOB, now_ms=1) == third, "it is durable"
    finally:
        reopened.close()


def test_a_document_made_again_has_a_version_that_was_never_used(registry: Registry) -> None:
    first = put(registry, b"one")
    gone = DocumentDelete(kind="job", name="resend-1", version=first.version + 1)
    with pytest.raises(VersionMismatch):
        registry.delete_document(gone, now_ms=1)
    gone = DocumentDelete(kind="job", name="resend-1", version=first.version)
    assert registry.delete_document(gone, now_ms=1) == first
    assert registry.delete_document(gone, now_ms=1) is None
    again = put(registry, b"one", 0)

    assert again.version > first.version
    with pytest.raises(VersionMismatch):
        put(registry, b"of somebody who saw the first", first.version)


def test_a_document_that_expired_is_gone_for_everybody(registry: Registry) -> None:
    lease = put(registry, b"mine", 0, now_ms=1_000, expires_in_ms=500)
    assert lease.expires_at_ms == 1_500
    with pytest.raises(VersionMismatch):
        put(registry, b"theirs", 0, now_ms=1_499, expires_in_ms=500)
    renewed = put(registry, b"mine", lease.version, now_ms=1_400, expires_in_ms=500)
    with pytest.raises(VersionMismatch):
        put(registry, b"theirs", 0, now_ms=1_899, expires_in_ms=500)
    assert registry.document(JOB, now_ms=1_900) is None
    assert names(registry, now_ms=1_900) == []
    with pytest.raises(VersionMismatch):
        put(registry, b"too late", renewed.version, now_ms=1_900)
    theirs = put(registry, b"theirs", 0, now_ms=1_900, expires_in_ms=500)
    assert registry.document(JOB, now_ms=2_000) == theirs


def test_what_expired_makes_room_and_is_cleaned_up(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(120):
        put(registry, b"x", name=f"lease-{number}", now_ms=1_000, expires_in_ms=10)
    monkeypatch.setattr(limits, "DOCUMENTS_MAX", 100)
    for number in range(110):
        put(registry, b"y", name="last", now_ms=5_000 + number)

    assert names(registry, now_ms=5_000) == [("job", "last")]
    assert len(names(registry, now_ms=1_005)) < 120, "the rows themselves are gone, too"


def test_the_same_request_once_more_is_answered_and_not_done_twice(registry: Registry) -> None:
    first = put(registry, b"one", 0, request="ab12")

    assert put(registry, b"one", 0, request="ab12") == first
    with pytest.raises(VersionMismatch):
        put(registry, b"one", 0, request="cd34")


def test_documents_are_listed_by_kind_and_name_page_by_page(registry: Registry) -> None:
    for kind, name in [("rule", "a"), ("job", "b"), ("job", "B"), ("job", "a.1"), ("job", "a-2")]:
        wanted = DocumentPut(kind=kind, name=name, body=b"12345")
        registry.put_document(wanted, now_ms=1)
    everything = [("job", "B"), ("job", "a-2"), ("job", "a.1"), ("job", "b"), ("rule", "a")]

    assert names(registry) == everything
    assert names(registry, kind="rule") == [("rule", "a")]
    assert names(registry, prefix="a") == [("job", "a-2"), ("job", "a.1"), ("rule", "a")]
    assert names(registry, limit=1) == everything[:2], "one more than wanted"
    assert names(registry, after="job/a-2") == everything[2:]
    assert names(registry, after="job/b") == everything[4:]
    [without] = registry.documents(DocumentQuery(kind="rule"), now_ms=1)
    [whole] = registry.documents(DocumentQuery(kind="rule", bodies=True), now_ms=1)
    assert (without.body, without.size) == (b"", 5)
    assert whole.body == b"12345"


def test_there_are_only_so_many_and_of_so_many_bytes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOCUMENTS_MAX", 2)
    monkeypatch.setattr(limits, "DOCUMENTS_SIZE_MAX", 10)
    put(registry, b"123", name="a")
    put(registry, b"123", name="b")
    with pytest.raises(OverLimit):
        put(registry, b"", name="c")
    put(registry, b"1234567", name="b")
    with pytest.raises(OverLimit):
        put(registry, b"12345678", name="b")
    put(registry, b"1", name="b")
    put(registry, b"123456789", name="a")


def test_a_document_of_any_bytes_and_the_largest_size_comes_back_whole(registry: Registry) -> None:
    body = bytes(range(256)) * (DOCUMENT_SIZE_MAX // 256)
    put(registry, body)
    found = registry.document(JOB, now_ms=1)

    assert found is not None and found.body == body


def test_of_many_that_want_a_lease_one_gets_it(registry: Registry, opener: Opener) -> None:
    others = [opener() for _ in range(3)]

    def want(each: Registry) -> bool:
        try:
            put(each, b"mine", 0, expires_in_ms=60_000)
        except VersionMismatch:
            return False
        return True

    try:
        with ThreadPoolExecutor(len(others)) as threads:
            got = list(threads.map(want, others))
    finally:
        for each in others:
            each.close()
    assert sum(got) == 1


def test_documents_are_no_news(registry: Registry) -> None:
    """A lease that is renewed every few seconds wakes no meta server."""
    before = registry.version()
    put(registry, b"one")

    assert registry.version() == before
