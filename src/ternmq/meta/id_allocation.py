"""Gives topics and groups their numbers; pure. Two registries never give out the same one.

A registry counts. Before a meta server gives out a number for the first time since it opened one,
it leaps ahead by chance, in the upper bits. So a registry that was put back from an old copy, one
that begins empty in the place of one that was lost, and one that somebody else has, all go on
elsewhere than the one that the data of brokers and delay servers comes from. So does one that hears
of numbers it never gave out: another server may have the next ones, and not have said so yet.
Numbers keep growing, and the lower bits go on counting: leases name their group by them.

    bits 0..23   counted
    bits 24..    drawn when the registry is new, then more for each start that gives some out
"""

from collections.abc import Callable, Collection

COUNTED_BITS = 24
FIRST_MIN = 2**16
FIRST_MAX = 2**24
LEAP_MAX = 2**16
"""Sixteen thousand starts of meta servers stay below 2**53, so that programs which read JSON
numbers as floats see them whole."""
NUMBER_MAX = 2**56
"""Sixty thousand starts. What a server says is in use already cannot be higher, and what the wire
can carry (2**62) is far enough behind it that nobody uses up all numbers."""

Draw = Callable[[int], int]
"""A number below this one, by chance."""


def leap(last: int, draw: Draw) -> int:
    """The number after which a registry goes on that gave out `last` so far (0: none)."""
    high, counted = last >> COUNTED_BITS, last & ((1 << COUNTED_BITS) - 1)
    if high < FIRST_MIN:
        high = FIRST_MIN + draw(FIRST_MAX - FIRST_MIN)
    else:
        high += 1 + draw(LEAP_MAX)
    return high << COUNTED_BITS | counted


def past(last: int, reserved: Collection[int], draw: Draw) -> int:
    """Where to go on; `reserved` are numbers that are in use in the data of a server, and that this
    registry hears of only now."""
    return leap(last, draw) if last in reserved else last
