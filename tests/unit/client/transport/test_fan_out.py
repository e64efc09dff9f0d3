"""Questions to all broker groups: who is silent is named, nobody is left out in silence."""

import asyncio
from typing import Any

import pytest

from ternmq.client.transport.fan_out import FanOut
from ternmq.core.errors import BadRequest, DiskFull, GroupNotFound, TernError, Unavailable
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.stats import Status
from ternmq.wire.numbers import Command


class Fake:
    """`Links` to brokers that answer what they are told to."""

    def __init__(self, answers: dict[str, Any], away: tuple[str, ...] = ()) -> None:
        self._answers = answers
        self._away = list(away)
        self.asked: list[str] = []
        self.timeout = 0.1

    def masters(self, kind: str = "realtime") -> list[str]:
        return list(self._answers)

    def away(self, kind: str) -> list[str]:
        return self._away

    def lead(self, group: str, answer: object) -> None:
        self._answers[group] = answer

    def broker(self, group: str) -> str:
        return group

    async def ask(self, link: str, command: int, record: object, answer: object) -> Any:
        self.asked.append(link)
        said = self._answers[link]
        if isinstance(said, TernError):
            raise said
        return said


def fan_out(fake: Fake, missing: dict[str, str] | None = None) -> FanOut:
    return FanOut(fake, missing)  # type: ignore[arg-type]


async def ask(fake: Fake, command: Command = Command.LEDGER, **options: Any) -> dict[str, Any]:
    return await fan_out(fake, **options).ask(command, Empty(), Status)


async def test_answers_come_by_the_name_of_their_broker_group() -> None:
    assert await ask(Fake({"west": 2, "east": 1})) == {"east": 1, "west": 2}


async def test_a_silent_broker_group_is_named_after_the_others_were_asked() -> None:
    fake = Fake({"east": 1, "west": Unavailable("no route")}, away=("north",))

    with pytest.raises(Unavailable, match=r"'north': it is not running.*'west': no route.*east"):
        await ask(fake)
    assert fake.asked == ["east", "west"]


async def test_a_broker_group_that_is_led_again_in_time_is_asked() -> None:
    fake = Fake({"east": 1}, away=("north",))
    fake.timeout = 10

    asking = asyncio.create_task(ask(fake))
    await asyncio.sleep(0)
    fake.lead("north", 2)
    assert await asking == {"east": 1, "north": 2}


async def test_an_order_says_where_it_is_done_and_where_not() -> None:
    fake = Fake({"east": 1, "west": Unavailable("no route")})

    with pytest.raises(Unavailable, match="done on east only: repeat it when all are there"):
        await ask(fake, Command.GROUP_SET)


async def test_who_wants_to_know_what_is_missing_gets_the_rest() -> None:
    missing: dict[str, str] = {}

    answers = await ask(Fake({"east": 1}, away=("north",)), missing=missing)

    assert answers == {"east": 1}
    assert list(missing) == ["north"]


async def test_a_group_that_one_of_them_does_not_know_is_no_error() -> None:
    unknown = GroupNotFound("no group")

    assert await ask(Fake({"east": 1, "west": unknown})) == {"east": 1}
    with pytest.raises(GroupNotFound):
        await ask(Fake({"east": unknown, "west": unknown}))


async def test_a_refusal_is_raised_as_it_is() -> None:
    with pytest.raises(DiskFull):
        await ask(Fake({"east": 1, "west": DiskFull("full")}))


async def test_a_sequence_needs_a_broker_group_where_there_are_several() -> None:
    one, two = fan_out(Fake({"east": 1})), fan_out(Fake({"east": 1, "west": 1}))
    seventh = Start(at="sequence", value=7)

    assert await one.chosen(seventh) == ["east"]
    assert await two.chosen(Start(at="latest")) == ["east", "west"]
    assert await two.chosen(seventh, "west") == ["west"]
    with pytest.raises(BadRequest, match=r"sequence 7 belongs to one broker group.*east, west"):
        await two.chosen(seventh)
    with pytest.raises(BadRequest, match=r"no broker group 'north'; there are: east, west"):
        await two.chosen(Start(), "north")


async def test_what_one_of_them_has_is_not_denied_while_another_is_silent() -> None:
    gone, away = GroupNotFound("not here"), Unavailable("no route")

    async def first(**answers: Any) -> Any:
        fake = fan_out(Fake(answers))
        return await fake.first(Command.HALF_END, Empty(), Status, GroupNotFound)

    assert await first(east=gone, west=2) == 2
    assert await first(east=away, west=2) == 2
    with pytest.raises(GroupNotFound):
        await first(east=gone, west=gone)
    with pytest.raises(Unavailable, match="'east'"):
        await first(east=away, west=gone)
