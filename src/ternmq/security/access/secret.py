"""A secret of a person or an application: carried along, never shown.

`Secret` prints as `***`, in a log line, an error or a debugger; only `reveal` tells. It is read
from a file that nobody else may read, or from the environment, never from a command line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ternmq.core.errors import BadConfig
from ternmq.security.file_modes import too_open

HIDDEN: Final = "***"
SIZE_MAX = 4_096
PASSWORD, PASSWORD_FILE = "TERN_PASSWORD", "TERN_PASSWORD_FILE"


class Secret:
    """Text that is not for people, logs or errors."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not written down")


def read_secret(path: Path, what: str) -> Secret:
    """The first line of a file that its owner alone may read."""
    try:
        with path.open("rb") as file:
            mode = too_open(file.fileno())
            lines = file.read(SIZE_MAX).decode().splitlines()
    except OSError as error:
        raise BadConfig(f"cannot read {what} in {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadConfig(f"{what} in {path} is not text") from None
    if mode:
        raise BadConfig(
            f"others may read {what} in {path} (mode {mode:o}): chmod 600 {path}, and change it if "
            "others were here"
        )
    if not lines or not lines[0]:
        raise BadConfig(f"{path} is empty; the first line is {what}")
    return Secret(lines[0])


def find_password(
    password: object, password_file: str | Path | None, environment: Mapping[str, str]
) -> Secret | None:
    """What was given, else what the file says, else the environment."""
    given = Secret(password) if isinstance(password, str) else password
    if isinstance(given, Secret) and given.reveal():
        return given
    if given is not None:
        raise BadConfig("password is a text that is not empty")
    file = password_file or environment.get(PASSWORD_FILE)
    if file and (password_file or PASSWORD not in environment):
        return read_secret(Path(file), "the password")
    found = environment.get(PASSWORD)
    return Secret(found) if found else None
