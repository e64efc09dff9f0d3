"""What one run looks like, drawn from the seed: how many of what, for how long, and what is on.

Tests that look for one kind of bug replace some of it (`Cluster(seed, members=(3,), …)`); the rest
stays as the seed has it.
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    metas: int
    members: tuple[int, ...]
    """Of each broker group."""
    lasts: float
    """Seconds in which faults begin."""
    sends: int
    """By each of the four that send, in that time."""
    replica_lost: str
    hurry: int
    """Tenths of the default times after which somebody counts as late or dead."""
    faults: int
    only: tuple[str, ...] = ()
    """Faults that happen; empty: all kinds."""
    operated: bool
    """Somebody lets other members lead now and then, and moves order-key slots."""
    segment_batches: int
    """So many batches make a file of the message log."""
    transactions: bool
    delays: int
    """Members of the group of delay servers; 0: there is none."""
    expires: str
    """Why old messages go: by "age" or by "size"; empty: they stay, as the judge likes it."""
    backup: bool
    """One is taken while everything runs, and restored at the end."""

    @property
    def retention(self) -> dict[str, int]:
        """Settings of brokers by which messages go while consumers are behind."""
        by_age = {"retention_ms": 5_000, "retention_size": 0}
        by_size = {"retention_ms": 0, "retention_size": 30_000}
        return {"age": by_age, "size": by_size}.get(self.expires, {}) | (
            {"retention_interval_ms": 500} if self.expires else {}
        )

    @property
    def late_s(self) -> float:
        return self.hurry * 0.3

    @property
    def dead_s(self) -> float:
        return self.hurry * 1.0


def drawn(chance: Random) -> Shape:
    choice = chance.choice
    members = tuple(choice((1, 2, 2, 3)) for _ in range(choice((1, 1, 2))))
    expires = choice(("", "", "", "", "", "", "age", "size"))
    return Shape(
        metas=choice((1, 1, 2)),
        members=members,
        lasts=choice((3.0, 8.0, 20.0)),
        sends=choice((4, 12, 25)),
        replica_lost=choice(("read-only", "read-only", "continue")),
        hurry=choice((2, 10)),
        faults=choice((0, 2, 4, 8, 16)),
        operated=chance.random() < (0.4 if len(members) == 1 else 0.8),
        segment_batches=5 if expires else choice((5, 50, 1_000_000)),
        transactions=chance.random() < 0.4,
        delays=0 if expires else choice((0, 0, 0, 1, 2)),
        expires=expires,
        backup=not expires and chance.random() < 0.15,
    )
