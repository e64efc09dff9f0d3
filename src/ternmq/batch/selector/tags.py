"""The tag filter: `a || b` keeps the messages that carry one of these tags.

A tag is a code into the batch's dictionary of tags. So a batch is asked three times, cheapest
first: may it match at all (64 bits of the consume log, `may_match`), which of its different tags
are wanted (a few comparisons), which rows carry those (numpy over the codes). A message without a
tag matches no tag filter. Never looks at a row in Python, never decodes a tag.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from ternmq.batch.check import tag_bit
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.rows.runs import runs
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadFilter, Corrupt

EVERYTHING = "*"
SEPARATOR = "||"
LENGTH_MAX = 4_096
TAGS_MAX = 256


class TagColumn(NamedTuple):
    """The tags of a batch: the different ones, and each row's place among them."""

    words: list[bytes]
    codes: np.ndarray[Any, np.dtype[np.int32]]
    valid: np.ndarray[Any, np.dtype[np.bool_]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFilter:
    """Some tags; equal when they are the same tags, in whatever order they were written."""

    text: str
    """The canonical form: sorted, each tag once."""
    bloom: int = field(compare=False)
    """All bits of all tags: none of them in a batch's bloom, none of the tags in the batch."""
    _tags: frozenset[bytes] = field(compare=False, repr=False)
    _bits: tuple[int, ...] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The filter that `a || b` stands for; None where it keeps everything (`*`, empty)."""
        if not text.strip() or text.strip() == EVERYTHING:
            return None
        tags = _parse(text)
        bits = tuple({tag_bit(tag): None for tag in sorted(tags)})
        bloom = 0
        for one in bits:
            bloom |= one
        canonical = f" {SEPARATOR} ".join(tag.decode() for tag in sorted(tags))
        return cls(text=canonical, bloom=bloom, _tags=frozenset(tags), _bits=bits)

    def may_match(self, tag_bloom: int) -> bool:
        """False where no row of a batch with this bloom can match; True says nothing."""
        if not tag_bloom & self.bloom:
            return False
        return any(tag_bloom & bits == bits for bits in self._bits)

    def rows(self, view: BatchView) -> list[tuple[int, int]]:
        """The ranges of rows that carry one of the tags; `Corrupt` where tags cannot be read."""
        column = read_tags(view)
        if column is None:
            return []
        wanted = [word in self._tags for word in column.words]
        if True not in wanted:
            return []
        if column.valid is None and False not in wanted:
            return [(0, view.count)]
        chosen = np.array(wanted, dtype=np.bool_)[column.codes]
        if column.valid is not None:
            chosen &= column.valid
        return runs(chosen.tobytes())


def read_tags(view: BatchView) -> TagColumn | None:
    """The tag column with everything checked that reading it relies on; None without tags."""
    packed = view.buffer(Column.TAG, ColumnPart.VALUES)
    data = view.buffer(Column.TAG, ColumnPart.DICTIONARY_DATA)
    places = view.buffer(Column.TAG, ColumnPart.DICTIONARY_OFFSETS)
    if packed is None or data is None or places is None:
        return None
    if len(packed) != 4 * view.count or len(places) < 8 or len(places) % 4:
        raise Corrupt("the tag column has the wrong size")
    offsets = places.cast("i").tolist()
    if offsets[0] != 0 or offsets[-1] > len(data) or offsets != sorted(offsets):
        raise Corrupt("the dictionary of tags ends behind its data")
    text = bytes(data)
    words = [text[first:end] for first, end in itertools.pairwise(offsets)]
    codes = np.frombuffer(packed, dtype="<i4")
    if codes.min() < 0 or codes.max() >= len(words):
        raise Corrupt("a tag is not in its dictionary")
    return TagColumn(words, codes, valid_rows(view, Column.TAG))


def valid_rows(view: BatchView, column: Column) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Which rows have a value; None where all have one."""
    bits = view.buffer(column, ColumnPart.VALIDITY)
    if bits is None:
        return None
    if len(bits) * 8 < view.count:
        raise Corrupt(f"column {int(column)} lacks validity bits")
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=view.count, bitorder="little")
    return flags.view(np.bool_)


def _parse(text: str) -> set[bytes]:
    if len(text) > LENGTH_MAX:
        raise BadFilter(
            f"the tag filter has {len(text):,} characters; at most {LENGTH_MAX:,} are allowed",
            position=LENGTH_MAX,
        )
    tags: set[bytes] = set()
    at = 0
    for piece in text.split(SEPARATOR):
        tag = piece.strip()
        start = at + len(piece) - len(piece.lstrip())
        if not tag:
            raise _bad(f"a tag is missing next to {SEPARATOR}", at)
        if tag == EVERYTHING:
            raise _bad(f"{EVERYTHING} keeps everything and stands alone", start)
        if "|" in tag:
            raise _bad(f"a tag cannot hold |; write {SEPARATOR} between tags", text.index("|", at))
        try:
            tags.add(tag.encode())
        except UnicodeEncodeError as error:
            raise _bad("this is half a character", start + error.start) from None
        at += len(piece) + len(SEPARATOR)
        if len(tags) > TAGS_MAX:
            raise _bad(f"more than {TAGS_MAX} tags", start)
    return tags


def _bad(what: str, position: int) -> BadFilter:
    return BadFilter(f"the tag filter is wrong at column {position + 1}: {what}", position=position)
