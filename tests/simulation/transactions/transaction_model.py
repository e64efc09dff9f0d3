"""What must be true of transactions, whatever happens to the broker: told by its answers alone."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ternmq.batch.half import HalfInfo
from ternmq.wire.messages.transactions import HalfPlace

Place = tuple[str, int]
"""Topic and sequence."""


@dataclass(eq=False)
class Half:
    """One half batch: its bytes, sent as often as the client likes."""

    topic: str
    bodies: list[bytes]
    batch: bytes
    answered: bool = False


@dataclass(eq=False)
class Told:
    """A transaction, or one attempt of a detached one, as its clients know it."""

    info: HalfInfo
    halves: list[Half] = field(default_factory=list)
    commit_asked: bool = False
    state: str = ""
    """'committed' or 'rolled_back', once somebody was told or saw it."""
    placed: list[HalfPlace] | None = None

    @property
    def key(self) -> bytes:
        return self.info.key

    @property
    def bodies(self) -> set[bytes]:
        return {body for half in self.halves for body in half.bodies}

    @property
    def answered(self) -> set[bytes]:
        return {body for half in self.halves if half.answered for body in half.bodies}

    def said(self, state: str) -> None:
        """Somebody was told how it ended; a drop is not an end."""
        if state == "dropped":
            return
        assert self.state in ("", state), f"{self.key!r} was {self.state}, now it is {state}"
        assert state != "committed" or self.commit_asked, "committed, and nobody had asked"
        self.state = state

    def committed(self, placed: list[HalfPlace]) -> None:
        self.said("committed")
        assert self.placed in (None, placed), "a repeated commit has another answer"
        self.placed = placed


class Model:
    """All transactions, plain messages, and where each message was seen."""

    def __init__(self) -> None:
        self.told: dict[bytes, Told] = {}
        self.plain: dict[bytes, Place | None] = {}
        """Where it was answered to be; None: not answered."""
        self.seen: dict[Place, bytes] = {}
        self.committed_attempts: dict[str, list[int]] = {}

    def attempts(self, name: str) -> dict[int, Told]:
        return {one.info.attempt: one for one in self.told.values() if one.info.name == name}

    def highest(self, name: str) -> int:
        """The highest attempt that is known to have begun."""
        begun = [at for at, one in self.attempts(name).items() if one.answered]
        return max(begun, default=0)

    def is_committed(self, name: str) -> bool:
        return any(one.state == "committed" for one in self.attempts(name).values())

    def name_committed(self, name: str, attempts: list[int]) -> None:
        known = self.committed_attempts.setdefault(name, attempts)
        assert known == attempts, f"{name} was committed with {known}, then with {attempts}"

    def look(self, visible: dict[Place, bytes], firsts: dict[str, int]) -> None:
        """Compare what anybody can read with what was answered."""
        for place, body in self.seen.items():
            if place[1] >= firsts.get(place[0], 0):
                assert visible.get(place) == body, f"{body!r} was at {place}"
        self.seen |= visible
        times: dict[bytes, int] = {}
        for body in self.seen.values():
            times[body] = times.get(body, 0) + 1
        assert all(count == 1 for count in times.values()), "a message is there twice"
        for one in self.told.values():
            self._look_at(one, times.keys())
        for body, answered in self.plain.items():
            if answered is not None:
                assert self.seen.get(answered) == body, f"plain {body!r} is not at {answered}"
        known = {body for one in self.told.values() for body in one.bodies} | self.plain.keys()
        assert times.keys() <= known

    def _look_at(self, one: Told, seen: Iterable[bytes]) -> None:
        shown = one.bodies & set(seen)
        if shown:
            one.said("committed")
            assert one.answered <= shown, "a part of a transaction is visible"
        else:
            assert one.state != "committed" or not one.answered, "committed, and not visible"
        if one.placed is not None:
            rows = sum(place.count for place in one.placed)
            assert one.info.name or rows == len(shown)
