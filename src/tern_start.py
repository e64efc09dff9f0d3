"""What the `tern` script runs first: a Ctrl-C while everything is still being imported is no bug.

Apart from the package, because importing any part of that imports the client with numpy: a third of
a second in which Python would answer Ctrl-C with a stack trace.
"""

import os

EXIT_INTERRUPTED = 130


def run() -> None:
    try:
        from ternmq.cli.main import run as tern
    except KeyboardInterrupt:
        os._exit(EXIT_INTERRUPTED)  # Half of it is imported: nothing to close, nothing to say.
    tern()


if __name__ == "__main__":
    run()
