"""An archive is the fold of its commits: a row is in it once, whoever wrote what."""

from hypothesis import given
from hypothesis import strategies as st

from ternmq.pipeline.archive.log import (
    MESSAGES,
    ArchivedFile,
    ArchivedRange,
    ArchivePlace,
    ArchiveState,
    Commit,
    decode,
    encode,
)

PLACE = ArchivePlace(MESSAGES, "orders", "main")


def a_file(first: int, end: int) -> ArchivedFile:
    return ArchivedFile(
        path=f"messages/{first}-{end}",
        kind=MESSAGES,
        topic="orders",
        date="2026-01-01",
        broker_group="main",
        first=first,
        end=end,
        rows=end - first,
        size=1,
        from_ms=0,
        to_ms=1,
    )


def a_commit(number: int, after: int, first: int, end: int) -> Commit:
    added = ArchivedRange(place=PLACE, after=after, first=first, end=end)
    return Commit(number=number, job="j", made_at_ms=0, ranges=[added], added=[a_file(first, end)])


def test_ranges_follow_on_each_other() -> None:
    state = ArchiveState()

    assert state.add(a_commit(1, -1, 0, 10))
    assert state.add(a_commit(2, 10, 10, 15))
    assert state.marks[PLACE].end == 15
    assert sum(file.rows for file in state.files.values()) == 15


def test_a_commit_that_does_not_follow_on_is_void() -> None:
    """Two jobs at once: what the second one wrote again does not count."""
    state = ArchiveState()
    state.add(a_commit(1, -1, 0, 10))

    assert not state.add(a_commit(2, -1, 0, 12))
    assert not state.add(a_commit(3, 5, 5, 12))
    assert state.marks[PLACE].end == 10
    assert list(state.files) == ["messages/0-10"]


def test_what_was_gone_before_it_was_archived_is_counted() -> None:
    state = ArchiveState()
    state.add(a_commit(1, -1, 0, 10))
    state.add(a_commit(2, 10, 25, 30))

    assert (state.marks[PLACE].end, state.marks[PLACE].missing) == (30, 15)


def test_a_compaction_of_files_that_are_gone_is_void() -> None:
    state = ArchiveState()
    state.add(a_commit(1, -1, 0, 10))
    twice = [
        Commit(number=n, job="c", made_at_ms=0, added=[a_file(0, n)], removed=["messages/0-10"])
        for n in (2, 3)
    ]

    assert state.add(twice[0])
    assert not state.add(twice[1])
    assert list(state.files) == ["messages/0-2"]


@given(steps=st.lists(st.tuples(st.integers(-1, 40), st.integers(1, 10)), max_size=30))
def test_no_sequence_is_ever_in_two_files(steps: list[tuple[int, int]]) -> None:
    state = ArchiveState()
    for number, (after, rows) in enumerate(steps):
        first = max(after, 0)
        state.add(a_commit(number + 1, after, first, first + rows))

    seen = [n for file in state.files.values() for n in range(file.first, file.end)]
    assert len(seen) == len(set(seen))


def test_a_commit_reads_back() -> None:
    commit = a_commit(1, -1, 0, 10)

    assert decode(encode(commit)) == commit
