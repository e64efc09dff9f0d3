"""Where official clients differ, and what each is told.

The header `x-mq-language` says which one calls; Node calls itself HTTP. One that is not known is
treated as Java, the reference. Pure.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHabits:
    """What the gateway does for the clients of one language."""

    customized_backoff: bool
    """Its push consumers read a table of delays; else first, most and factor."""
    batch_size: int = 32
    """Messages that a push consumer asks for at once."""


JAVA = ClientHabits(customized_backoff=True)
HABITS = {
    "JAVA": JAVA,
    "PYTHON": ClientHabits(customized_backoff=True),
    "GO": ClientHabits(customized_backoff=True),
    "DOTNET": ClientHabits(customized_backoff=True),
    "RUST": ClientHabits(customized_backoff=True),
    # Without first, most and factor it allows one attempt: every failure would be the last.
    "HTTP": ClientHabits(customized_backoff=False),
}


def habits_of(language: str) -> ClientHabits:
    return HABITS.get(language.upper(), JAVA)
