"""The front gate: annotations are the rule for what a call takes."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, cast

import pytest

from ternmq.client.model.arguments import check_typed_options, fits, typed_calls
from ternmq.core.errors import BadRequest


class Options(TypedDict, total=False):
    rate: int
    tag: str | None


@typed_calls
class Desk:
    """A class as `mq.admin` has them."""

    async def order(self, topic: str, slots: Sequence[int] = (), *, force: bool = False) -> str:
        return f"{topic} {list(slots)} {force}"

    def find(self, **options: Unpack[Options]) -> Options:
        return options

    def _inside(self, topic: str) -> str:
        return topic


async def test_a_right_call_passes_and_a_wrong_one_is_told_by_name() -> None:
    desk: Any = Desk()

    assert await desk.order("a", [1, 2], force=True) == "a [1, 2] True"
    for call, said in [
        (lambda: desk.order(5), "topic is 5; it can be a text"),
        (lambda: desk.order("a", 5), "slots is 5; it can be a list; each is a whole number"),
        (lambda: desk.order("a", ["b"]), "slots is ['b']; it can be a list"),
        (lambda: desk.order("a", force=1), "force is 1; it can be True or False"),
        (lambda: desk.order(), "missing a required argument: 'topic'"),
        (lambda: desk.order("a", slot=1), "got an unexpected keyword argument 'slot'"),
    ]:
        with pytest.raises(BadRequest) as caught:
            await cast("Any", call)()
        assert said in caught.value.message


def test_keywords_are_checked_by_the_dict_that_declares_them() -> None:
    desk: Any = Desk()

    assert desk.find(rate=5, tag=None) == {"rate": 5, "tag": None}
    with pytest.raises(BadRequest, match="tag is 5; it can be a text"):
        desk.find(tag=5)
    with pytest.raises(BadRequest, match=r"find\(\) has no option 'rates'; did you mean 'rate'"):
        desk.find(rates=5)
    check_typed_options("find", {"tag": 5}, Options, but=("tag",))


def test_names_that_begin_with_an_underscore_are_left_alone() -> None:
    desk: Any = Desk()

    assert desk._inside(5) == 5


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, True),
        (True, int, False),
        (True, float, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        ([], Literal["a"], False),
        ("abc", Sequence[str], False),
        (("a",), list[str], True),
        ([(1, 2)], list[tuple[int, int]], True),
        ([(1, 2, 3)], list[tuple[int, int]], False),
        ({"a": 1}, Mapping[str, int], True),
        ({"a": "b"}, Mapping[str, int], False),
        (print, Callable[[int], None], True),
        (5, Callable[[int], None], False),
        (5, Any, True),
        (None, str | None, True),
        (datetime(2030, 1, 1), datetime | int, True),
    ],
)
def test_what_fits_an_annotation(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected
