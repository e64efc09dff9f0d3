"""Walks as data: what is counted, what is left out, which way is the spine."""

from benchmarks.walk.__main__ import listing, table
from benchmarks.walk.trace import Call, Trace, in_order, shortest


def calls(*named: str, tree: int = 1, caller: str | None = None) -> list[Call]:
    """`file:function` each."""
    found = []
    for name in named:
        file, _, function = name.partition(":")
        found.append(Call(file, function or "run", caller, tree))
    return found


def test_files_stand_in_the_order_of_their_first_call() -> None:
    walk = Trace(calls("a.py", "b.py", "a.py", "a.py:other", "c.py"))

    assert walk.files == ["a.py", "b.py", "c.py"]
    assert walk.functions == 4
    assert walk.crossings == 3
    assert [line.calls for line in walk.lines] == [3, 1, 1]


def test_time_is_added_up_by_file() -> None:
    walk = Trace(calls("a.py", "b.py", "a.py"))
    for call in walk.calls:
        call.nanoseconds = 1500

    assert [line.microseconds for line in walk.lines] == [3.0, 1.5]


def test_a_tree_that_is_background_goes_as_a_whole_or_stays_as_a_whole() -> None:
    silence = Trace(calls("tick.py", "wheel.py"))
    walk = Trace(
        calls("tick.py", "wheel.py", tree=1)
        + calls("tick.py", "wheel.py", "ready.py", tree=2)
        + calls("send.py", "core/clock.py", tree=3)
    )

    left = walk.without(silence.trees)

    assert left.files == ["tick.py", "wheel.py", "ready.py", "send.py"]
    assert len(left.calls) == 4


def test_the_beginning_of_one_thread_can_be_left_out() -> None:
    walk = Trace(calls("send.py", "write.py", "answer.py", "fire.py"))
    walk.calls[1].thread = 7

    assert walk.since(3, thread=0).files == ["write.py", "fire.py"]


def test_the_spine_is_the_shortest_way_from_a_socket_to_a_disk() -> None:
    arriving = Call("peer.py", "buffer_updated", None, 1, arrives=True)
    writing = Call("disk.py", "pwritev", "log.py", 2, writes=True)
    walk = Trace(
        [
            arriving,
            *calls("router.py", "house.py", caller="peer.py"),
            *calls("log.py", caller="commit.py"),
            *calls("commit.py", "check.py", caller="router.py"),
            *calls("detour.py", caller="commit.py"),
            *calls("log.py", caller="detour.py"),
            writing,
        ]
    )

    assert walk.spine == ["peer.py", "router.py", "commit.py", "log.py", "disk.py"]


def test_what_writes_nothing_has_no_spine() -> None:
    assert Trace(calls("a.py", "b.py")).spine == []
    assert shortest({"a": {"b": None}}, ["a"], {"c"}) == []


def test_a_list_of_files_is_held_against_a_walk() -> None:
    crossed = ["a.py", "b.py", "c.py", "b.py"]

    assert in_order(["a.py", "c.py", "b.py"], crossed) == []
    assert in_order(["c.py", "a.py"], crossed) == ["a.py is not crossed after c.py"]
    assert in_order(["a.py", "d.py", "b.py"], crossed) == ["d.py is not crossed"]


def test_files_of_one_package_are_counted() -> None:
    walk = Trace(calls("broker/router.py", "broker/log/commit.py", "brokerage.py", "rpc/peer.py"))

    assert walk.under("broker") == 2


def test_a_walk_is_printed_with_its_files_and_as_a_row() -> None:
    walk = Trace(calls("broker/router.py", "rpc/peer.py"))

    assert [line.split()[1] for line in listing("ack", walk)[1:]] == walk.files
    assert table({"ack": walk})[2:] == ["| ack | 2 | 2 | 2 | 1 | 1 | - |"]
