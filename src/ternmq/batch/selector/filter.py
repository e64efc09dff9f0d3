"""What a subscription wants to see: tags, a condition on properties, or both (R9, R10).

Brokers decide by it what a group gets, readers what they show. All consumers of a group share one
filter, because a row that one of them would not get is settled
for the whole group. Whoever comes with another filter while others are there is refused, and told
both. Decides rows of a batch; never does I/O.
"""

from dataclasses import dataclass

from ternmq.batch.selector.selector import Selector
from ternmq.batch.selector.tags import TagFilter
from ternmq.batch.view import BatchView
from ternmq.core.range_set import RangeSet


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows must pass both parts that are there."""

    tags: TagFilter | None
    selector: Selector | None

    @property
    def text(self) -> str:
        parts = [f"tag {self.tags.text!r}"] if self.tags else []
        parts += [f"filter {self.selector.text!r}"] if self.selector else []
        return " and ".join(parts)

    def may_match(self, tag_bloom: int) -> bool:
        """False: no row of a batch with this bloom can pass, so it need not be read."""
        return self.tags is None or self.tags.may_match(tag_bloom)

    def rows(self, view: BatchView) -> list[tuple[int, int]]:
        """The ranges of rows that pass."""
        if self.selector is None:
            return self.tags.rows(view) if self.tags else [(0, view.count)]
        found = self.selector.rows(view)
        if self.tags is None or not found:
            return found
        tagged = RangeSet(self.tags.rows(view))
        return [part for first, end in found for part in tagged.overlap(first, end)]


def parse_filter(tag: str, expression: str) -> Filter | None:
    """None where nothing is filtered; raises `BadFilter` with the place of the mistake."""
    tags = TagFilter.parse(tag) if tag else None
    selector = Selector.parse(expression) if expression.strip() else None
    return Filter(tags, selector) if tags or selector else None


def filter_text(filter_: Filter | None) -> str:
    return filter_.text if filter_ else "no filter"
