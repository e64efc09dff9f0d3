"""Documents as clients ask for them: hostile names, sizes, pages that fit."""

from collections.abc import AsyncIterator

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadName, BadRequest, DocumentNotFound, TooLarge
from ternmq.meta.directory import serving_directory
from ternmq.meta.document_commands import WITH_BODIES_MAX, DocumentCommands
from ternmq.wire.registry.documents import (
    DOCUMENT_SIZE_MAX,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
    Documents,
)
from tests.unit.meta.conftest import Opener


@pytest.fixture
async def commands(opener: Opener) -> AsyncIterator[DocumentCommands]:
    async with serving_directory(opener, clock=SystemClock()) as directory:
        yield DocumentCommands(directory)


async def listed(commands: DocumentCommands, wanted: DocumentQuery) -> Documents:
    found = await commands.list(wanted)
    assert isinstance(found, Documents)
    return found


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ü", "x" * 201, "a\x00", "a\n"])
async def test_a_name_that_breaks_the_rule_is_refused(
    commands: DocumentCommands, name: str
) -> None:
    with pytest.raises(BadName):
        await commands.put(DocumentPut(kind="job", name=name, body=b""))
    with pytest.raises(BadName):
        await commands.find(DocumentNamed(kind="job", name=name))
    with pytest.raises(BadName):
        await commands.delete(DocumentDelete(kind="job", name=name))


@pytest.mark.parametrize("kind", ["", "a=b", "a/b", "x" * 41, "%job"])
async def test_a_kind_that_breaks_the_rule_is_refused(
    commands: DocumentCommands, kind: str
) -> None:
    with pytest.raises(BadName):
        await commands.put(DocumentPut(kind=kind, name="n", body=b""))


async def test_names_that_mean_something_to_a_path_are_only_names(
    commands: DocumentCommands,
) -> None:
    for name in (".", "..", "a=b", "%", "me@home:1"):
        await commands.put(DocumentPut(kind="job", name=name, body=name.encode()))

    found = await listed(commands, DocumentQuery(kind="job", bodies=True))
    assert {each.name: each.body for each in found.documents} == {
        name: name.encode() for name in (".", "..", "a=b", "%", "me@home:1")
    }


async def test_what_is_too_large_or_lasts_too_long_is_refused(commands: DocumentCommands) -> None:
    with pytest.raises(TooLarge):
        await commands.put(DocumentPut(kind="a", name="b", body=bytes(DOCUMENT_SIZE_MAX + 1)))
    for expires in (-1, 2**60):
        with pytest.raises(BadRequest):
            await commands.put(DocumentPut(kind="a", name="b", body=b"", expires_in_ms=expires))
    with pytest.raises(BadRequest):
        await commands.put(DocumentPut(kind="a", name="b", body=b"", request="x" * 5_000))


async def test_what_is_not_there_is_said_so(commands: DocumentCommands) -> None:
    with pytest.raises(DocumentNotFound):
        await commands.find(DocumentNamed(kind="job", name="n"))
    with pytest.raises(DocumentNotFound):
        await commands.delete(DocumentDelete(kind="job", name="n"))


async def test_a_page_is_cut_by_number_and_by_size_and_goes_on(commands: DocumentCommands) -> None:
    for number in range(WITH_BODIES_MAX + 20):
        size = DOCUMENT_SIZE_MAX if number < 20 else 1
        body = bytes(size)
        await commands.put(DocumentPut(kind="job", name=f"{number:03}", body=body))
    names: list[str] = []
    sizes: list[int] = []
    after = ""
    while True:
        wanted = DocumentQuery(kind="job", after=after, limit=1_000, bodies=True)
        found = await listed(commands, wanted)
        names += [each.name for each in found.documents]
        sizes.append(sum(len(each.body) for each in found.documents))
        after = found.following
        if not after:
            break

    assert names == [f"{number:03}" for number in range(WITH_BODIES_MAX + 20)]
    assert max(sizes) <= 16 * DOCUMENT_SIZE_MAX
    assert len(sizes) >= 2
    one = await listed(commands, DocumentQuery(limit=-5))
    assert len(one.documents) == 1 and one.following == "job/000"
