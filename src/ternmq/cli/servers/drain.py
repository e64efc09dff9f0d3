"""`tern broker drain`: empty a broker group, show how far it is, say when it is safe to stop."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, KindFlag, ServerFlag, Url, use
from ternmq.cli.terminal.output import note, say, show_json

if TYPE_CHECKING:
    from ternmq.client.admin.drain import DrainProgress
    from ternmq.client.client import Client

EVERY_S = 0.5


def drain(
    broker_group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    kind: KindFlag = ServerFlag.realtime,
    undo: Annotated[bool, typer.Option("--undo", help="Let producers come back.")] = False,
    wait: Annotated[
        bool, typer.Option(help="Wait until it is empty; else say what is left.")
    ] = True,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Let producers move away from a broker group and wait until nothing is left to do there.

    The order is kept in the registry: it holds over restarts until --undo. Ctrl-C ends the waiting,
    not the draining. Consumers, transactions and delayed messages on their way are waited for.
    """
    last = use(url, lambda mq: _drain(mq, broker_group, kind, undo=undo, wait=wait and not undo))
    safe = last.empty and wait
    what = "delay server" if kind is ServerFlag.delay else "broker group"
    if as_json:
        show_json(_fields(last) | {"safe_to_stop": safe})
    elif undo:
        say(f"{what} {broker_group} takes messages again")
    elif safe:
        stays = f"; {last.dead_letters} dead letters stay there" if last.dead_letters else ""
        say(f"{what} {broker_group} is empty: safe to stop{stays}")
    else:
        say(f"{what} {broker_group} is being drained: {_left(last)}")


async def _drain(
    mq: "Client", broker_group: str, kind: ServerFlag, *, undo: bool, wait: bool
) -> "DrainProgress":
    shown = ""
    before: DrainProgress | None = None
    found = await mq.admin.drain(broker_group, undo, kind.value)
    while wait and not found.done_after(before):
        if _left(found) != shown:
            shown = _left(found)
            note(f"draining {broker_group}: {shown}")
        await asyncio.sleep(EVERY_S)
        before = found
        # Slots that were on their way at first are moved when they have arrived.
        if found.slots:
            found = await mq.admin.drain(broker_group)
        else:
            found = await mq.admin.drain_progress(broker_group, kind.value)
    return found


def _left(found: "DrainProgress") -> str:
    """What is waited for, in words."""
    if found.missing:
        return "; ".join(f"{name} does not answer ({why})" for name, why in found.missing.items())
    parts = [
        f"{count} {what}"
        for count, what in (
            (found.ready, "ready"),
            (found.in_flight, "in flight"),
            (found.waiting_retry, "waiting for a retry"),
            (found.half, "open transactions"),
            (found.delayed, "on their way from delay servers"),
            (found.untaken, "to be taken by delay servers"),
            (found.pending, "not due yet"),
            (found.slots, "order-key slots"),
        )
        if count
    ]
    names = ", ".join(f"{name} ({count})" for name, count in found.groups.items())
    return (", ".join(parts) or "nothing left") + (f"; groups: {names}" if names else "")


def _fields(found: "DrainProgress") -> dict[str, Any]:
    return asdict(found) | {"left": found.left}
