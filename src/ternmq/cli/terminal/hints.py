"""Words that people bring from elsewhere: what the command is called here.

A command that is not there is answered by Click with what sounds alike. Words that mean the same
and sound different are in this table.
"""

from typing import Any

from typer import BadParameter
from typer.core import TyperGroup

USAGE_ERROR: type[Exception] = BadParameter.__bases__[0]
"""Click's; newer Typers bring a Click of their own."""

HINTS = {
    "redrive": "tern dead resend GROUP, or for many: tern pipeline dead-letters --redrive",
    "requeue": "tern dead resend GROUP",
    "retry": "tern dead resend GROUP, or tern outbox retry",
    "replay": "tern group replay TOPIC GROUP, or from an archive: tern pipeline replay",
    "rewind": "tern group reset TOPIC GROUP --to …",
    "reset": "tern group reset TOPIC GROUP --to …",
    "publish": "tern send TOPIC BODY",
    "produce": "tern send TOPIC BODY",
    "subscribe": "tern consume TOPIC --group GROUP",
    "get": "tern browse TOPIC, or tern find --id ID",
    "peek": "tern browse TOPIC",
    "purge": "tern topic set TOPIC --keep TIME, or tern topic delete TOPIC",
    "queue": "tern topic",
    "queues": "tern topic list",
    "topics": "tern topic list",
    "groups": "tern group list",
    "lag": "tern group list, or tern ledger TOPIC",
    "health": "tern doctor, or tern status",
    "start": "tern up",
    "ls": "the command is called list",
    "rm": "the command is called delete",
    "describe": "the command is called show",
}


class HintingGroup(TyperGroup):
    """A group of commands that knows what others call them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except USAGE_ERROR as error:
            hint = HINTS.get(args[0].lower()) if args else None
            if hint is not None:
                error.message = f"No such command {args[0]!r}. Here it is: {hint}"  # type: ignore[attr-defined]
            raise
