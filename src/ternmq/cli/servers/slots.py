"""`tern broker slots`: on which broker groups order keys lie, and moving them.

A slot holds the order keys that fall into it, of all topics. It moves in steps that keep the order
of every key; the commands start a move, the servers finish it, `--wait` waits for that.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, show_json, show_table
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.core.slots import SLOTS
from ternmq.wire.messages.order_keys import Placement

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(help="Order-key slots: where they are, moving them.", no_args_is_help=True)

DIGITS_MAX = 10
LOOK_S = 0.2
WAIT_S = 600.0
Wait = Annotated[
    bool, typer.Option("--wait", help="Until consumers have settled what comes before, too.")
]


@app.command()
def show(url: Url = URL, as_json: Json = False) -> None:
    """How many slots each broker group has, and which are on their way."""

    async def job(mq: "Client") -> Placement:
        return await mq.admin.placement()

    _show(use(url, job), as_json)


@app.command()
def move(
    broker_group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The broker group that gets them.")
    ],
    slots: Annotated[str, typer.Argument(help="Which, for example 7 or 0-99,512.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Do not wait for a broker group that is gone; order may suffer."
        ),
    ] = False,
    wait: Wait = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move slots to a broker group; the order of every key holds."""
    wanted = parse_slots(slots)

    async def job(mq: "Client") -> Placement:
        placement = await mq.admin.move_slots(broker_group, wanted, force=force)
        return await _settled(mq) if wait else placement

    _show(use(url, job), as_json)


@app.command()
def balance(
    leaving: Annotated[
        list[str] | None, typer.Option(help="A broker group that shall have none; repeatable.")
    ] = None,
    wait: Wait = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Share the slots out by weight over the broker groups that are there; few of them move."""

    async def job(mq: "Client") -> Placement:
        placement = await mq.admin.balance_slots(leaving=leaving or [])
        return await _settled(mq) if wait else placement

    _show(use(url, job), as_json)


@app.command()
def release(
    broker_group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The broker group that had them.")
    ],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Do not wait any more for what consumers have not settled on a former owner.

    For one that is gone, or a consumer group that nobody runs. What is still there is consumed
    whenever it is, perhaps after newer messages of the same order keys.
    """

    async def job(mq: "Client") -> Placement:
        return await mq.admin.release_slots(broker_group)

    _show(use(url, job), as_json)


async def _settled(mq: "Client") -> Placement:
    """Until no slot is on its way."""
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                placement = await mq.admin.placement()
                if not placement.closing and not placement.behind:
                    return placement
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise Unavailable(
            f"slots are still on their way after {WAIT_S:g} s; 'tern broker slots show' says which"
        ) from None


def parse_slots(text: str) -> list[int]:
    """'0-99,512' -> numbers."""
    slots: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise BadRequest(f"{text!r} names no slots; write numbers and ranges like 0-99,512")
        if max(len(first), len(last)) > DIGITS_MAX or int(last or first) >= SLOTS:
            raise BadRequest(f"a slot is a number from 0 to {SLOTS - 1}, not as in {text!r}")
        slots.update(range(int(first), int(last or first) + 1))
    if not slots:
        raise BadRequest(f"{text!r} names no slots; a range goes from the lower to the higher one")
    return sorted(slots)


def spans(slots: list[int]) -> str:
    """Numbers -> '0-99,512'."""
    parts: list[tuple[int, int]] = []
    for slot in sorted(slots):
        if parts and slot == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], slot)
        else:
            parts.append((slot, slot))
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def _show(placement: Placement, as_json: bool) -> None:
    if as_json:
        show_json(placement)
        return
    if not placement.owners:
        note("no slot has an owner yet: the first message with an order key gives them one")
        return
    names = placement.groups
    owners = Counter(names[at] for at in placement.owners)
    closing = Counter(names[placement.owners[slot]] for slot in placement.closing)
    behind = Counter(names[at] for at in placement.behind.values())
    groups = sorted({*owners, *behind, *placement.weights})
    rows = [
        [
            name,
            str(owners[name]),
            str(placement.weights.get(name, 100)),
            str(closing[name] or "-"),
            str(behind[name] or "-"),
        ]
        for name in groups
    ]
    show_table(["group", "slots", "weight", "giving up", "unsettled here"], rows)
    if placement.behind:
        note(f"not settled on their former owners: {spans(list(placement.behind))}")
