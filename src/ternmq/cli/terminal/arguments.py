"""What people type, before a command sees it: `--url` and `--json` may stand anywhere in a line.

A command has its options behind its name. People also write `tern --url X topic list` and
`tern topic --json list`: options that every command has are moved behind the name of the command
here. Only words before that name are looked at, so nothing of a message or a value is ever touched.
"""

from collections.abc import Sequence
from typing import Any

VALUED = ("--url",)
FLAGS = ("--json",)


def arranged(root: Any, words: Sequence[str]) -> list[str]:
    """The command line with such options where the command looks for them.

    `root` is the command of Click that has all others below it; newer Typers bring a Click of
    their own, so it is known by what it has.
    """
    commands: dict[str, Any] | None = root.commands
    names: list[str] = []
    moved: list[str] = []
    left = list(words)
    while commands is not None and left:
        word = left.pop(0)
        if word in FLAGS or word.startswith(tuple(f"{name}=" for name in VALUED)):
            moved.append(word)
        elif word in VALUED and left:
            moved += [word, left.pop(0)]
        else:
            names.append(word)
            if not word.startswith("-"):
                if word not in commands:  # Click says so, and what there is.
                    break
                commands = getattr(commands[word], "commands", None)
    return [*names, *moved, *left]


def wants_json(words: Sequence[str]) -> bool:
    """Is the line one of `--json`? What stands behind `--` is not an option."""
    options = words[: list(words).index("--")] if "--" in words else words
    return "--json" in options
