"""Epoch tables: where two histories part, what is own, the bytes of the file."""

from random import Random

import pytest

from ternmq.core.errors import Corrupt
from ternmq.storage.log.leader_epochs import (
    EPOCHS_MAX,
    Epochs,
    LeaderEpochs,
    Starts,
    common_end,
    decode,
    encode,
)


def table(*starts: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for number, start in starts:
        made = made.begun(number, start)
    return made


@pytest.mark.parametrize(
    ("mine", "mine_end", "theirs", "theirs_end", "common"),
    [
        ([(1, 0)], 100, [(1, 0)], 80, 80),
        ([(1, 0)], 100, [(1, 0), (2, 90)], 300, 90),
        ([(1, 0), (2, 100)], 150, [(1, 0), (3, 120)], 200, 100),
        ([(1, 0), (3, 120)], 200, [(1, 0), (2, 100)], 150, 100),
        ([(1, 0), (2, 100)], 150, [(1, 0), (2, 100)], 150, 150),
        ([(1, 0), (2, 100)], 60, [(2, 100)], 150, 60),  # Follows, and has not come so far.
        ([], 100, [(1, 0)], 80, 0),
        ([(1, 0)], 100, [(2, 0)], 80, 0),
        ([(1, 0)], 0, [(1, 0)], 80, 0),
    ],
)
def test_two_histories_are_the_same_up_to(
    mine: Starts, mine_end: int, theirs: Starts, theirs_end: int, common: int
) -> None:
    assert common_end(mine, mine_end, theirs, theirs_end) == common
    assert common_end(theirs, theirs_end, mine, mine_end) == common


class _Log:
    """A log whose bytes are the epochs that wrote them: the truth to compare with."""

    def __init__(self) -> None:
        self.bytes: list[tuple[int, int]] = []
        self.table = LeaderEpochs()

    def follow(self, master: "_Log", count: int) -> None:
        cut = common_end(self.table.starts, len(self.bytes), master.table.starts, len(master.bytes))
        assert self.bytes[:cut] == master.bytes[:cut]
        self.table = self.table.cut(cut)
        del self.bytes[cut:]
        self.table = self.table.adopted(master.table.starts, empty=not self.bytes)
        self.bytes += master.bytes[cut : cut + count]


@pytest.mark.parametrize("seed", range(200))
def test_what_two_tables_have_in_common_is_the_same_and_all_of_it(seed: int) -> None:
    """Any member may lead and write, any may lose a tail, any may follow the last master."""
    random = Random(seed)
    logs = [_Log() for _ in range(3)]
    epoch, master = 0, logs[0]
    for _ in range(60):
        chance, one = random.random(), random.choice(logs)
        if chance < 0.2 or not epoch:
            epoch, master = epoch + 1, one
            one.table = one.table.begun(epoch, len(one.bytes))
        elif chance < 0.6:
            master.bytes += [(epoch, random.random().hex().__hash__()) for _ in range(3)]
        elif chance < 0.9 and one is not master:
            one.follow(master, random.randint(0, 8))
        elif one is not master:
            del one.bytes[len(one.bytes) - random.randint(0, len(one.bytes)) // 3 :]
        for a in logs:
            for b in logs:
                cut = common_end(a.table.starts, len(a.bytes), b.table.starts, len(b.bytes))
                assert a.bytes[:cut] == b.bytes[:cut]
                longer = cut + 1
                if cut and longer <= min(len(a.bytes), len(b.bytes)):
                    assert a.bytes[:longer] != b.bytes[:longer]


def test_an_epoch_that_wrote_nothing_makes_room_for_the_next() -> None:
    assert table((1, 0), (2, 100), (3, 100)).starts == [(1, 0), (3, 100)]


def test_the_oldest_epochs_are_forgotten() -> None:
    many = table(*((number, number * 8) for number in range(1, EPOCHS_MAX + 11)))
    assert len(many.epochs) == EPOCHS_MAX
    assert many.epochs[0].number == 11


def test_only_what_was_led_here_is_own() -> None:
    mine = table((2, 100)).cut(150).adopted([(1, 50), (2, 100), (3, 150)], empty=False)
    assert [mine.is_own(offset) for offset in (0, 60, 120, 200)] == [True, False, True, False]
    new = LeaderEpochs().adopted([(5, 400)], empty=True)
    assert not new.is_own(0)
    assert not new.is_own(500)
    assert new.starts == [(5, 400)]


def test_an_epochs_file_that_is_damaged_is_found_out() -> None:
    good = encode(Epochs(messages=table((1, 0)), pulls=table((1, 0), (2, 8)), pull_cut=16))
    assert decode(good).pull_cut == 16
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(Corrupt):
            decode(bytes(bad))
    with pytest.raises(Corrupt):
        decode(good[:7])
