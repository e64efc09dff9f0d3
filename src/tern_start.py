"""What the scripts `tern` and `ternmq` run first, before anything that may be missing is imported.

A Ctrl-C while everything is still being imported is no bug. Nor is an installation of the client
alone: it has no commands, and says in one line how to get them.
"""

import os
import sys

EXIT_INTERRUPTED = 130
EXIT_NOT_INSTALLED = 2
# Without these there is no command at all; what single commands need they say themselves.
COMMANDS_NEED = ("typer", "rich", "structlog", "click")


def run() -> None:
    try:
        from ternmq.cli.main import run as tern
    except KeyboardInterrupt:
        os._exit(EXIT_INTERRUPTED)  # Half of it is imported: nothing to close, nothing to say.
    except ModuleNotFoundError as missing:
        if missing.name not in COMMANDS_NEED:
            raise
        sys.exit(_say_what_to_install())
    tern()


def _say_what_to_install() -> int:
    arguments = " ".join(sys.argv[1:])
    sys.stderr.write(
        "error: this is the client alone; servers and commands come with pip install"
        f" 'ternmq[server]', or at once: uvx 'ternmq[server]' {arguments}".rstrip()
        + "\n"
    )
    return EXIT_NOT_INSTALLED


if __name__ == "__main__":
    run()
