"""Lists without what is not for whoever asks."""

from typing import Any

import pytest

from ternmq.rpc.guarded.answer_filter import NARROWED, narrowed
from ternmq.security.access.rights import Rights
from ternmq.wire.messages.groups import HalfLine, Ledger, LedgerLine
from ternmq.wire.messages.limits import AppLimit, AppLimits, Grant
from ternmq.wire.messages.order_keys import Home
from ternmq.wire.messages.servers import Routes
from ternmq.wire.messages.stats import Status
from ternmq.wire.messages.transactions import HalfOpen, HalfOpens
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack

NARROW = Rights("shop", ["shop"], [Grant(action="publish", resource="topic:order.*")])
WIDE = Rights("admin", ["*"], [Grant(action="*", resource="*")])


def line(topic: str) -> LedgerLine:
    numbers: dict[str, Any] = dict.fromkeys(
        ("start", "end", "total", "ready", "in_flight", "waiting_retry", "acked"), 0
    )
    more: dict[str, Any] = dict.fromkeys(("filtered", "skipped", "dead", "expired"), 0)
    return LedgerLine(topic=topic, group="g", lane="topic", **numbers, **more)


def half(app: str, topic: str) -> HalfOpen:
    numbers: dict[str, Any] = dict.fromkeys(
        ("attempt", "rows", "size", "opened_at_ms", "checks", "next_at_ms"), 0
    )
    return HalfOpen(transaction=b"t", name="", app=app, state="open", topics=[topic], **numbers)


def status() -> Status:
    numbers: dict[str, Any] = dict.fromkeys(
        ("started_at_ms", "now_ms", "disk_free", "disk_size", "memory", "connections"), 0
    )
    return Status(
        node="n",
        role="meta",
        state="ok",
        address="a",
        data_dir="/secret/place",
        cpu_s=0.0,
        log_start=0,
        log_end=0,
        registry="postgresql://db",
        pid=7,
        **numbers,
    )


@pytest.mark.parametrize(
    ("command", "answer", "left"),
    [
        (
            Command.ROUTES,
            Routes(
                version=1,
                servers=[],
                homes={"order.a": Home(), "pay": Home()},
                body_sizes={"order.b": 1, "pay.b": 2},
            ),
            Routes(version=1, servers=[], homes={"order.a": Home()}, body_sizes={"order.b": 1}),
        ),
        (
            Command.LEDGER,
            Ledger(
                lines=[line("order.a"), line("pay")],
                halves=[HalfLine(topic="pay", open=1, dropped=0)],
            ),
            Ledger(lines=[line("order.a")]),
        ),
        (
            Command.LIMIT_LIST,
            AppLimits(limits=[AppLimit(app="shop", rate=1), AppLimit(app="bank", rate=2)]),
            AppLimits(limits=[AppLimit(app="shop", rate=1)]),
        ),
        (
            Command.HALF_LIST,
            HalfOpens(
                transactions=[half("shop", "x"), half("bank", "pay"), half("bank", "order.a")],
                total=3,
                dropped=0,
            ),
            HalfOpens(
                transactions=[half("shop", "x"), half("bank", "order.a")], total=2, dropped=0
            ),
        ),
    ],
)
def test_only_what_may_be_seen_is_left(command: Command, answer: Record, left: Record) -> None:
    assert unpack(narrowed(command, pack(answer), NARROW), NARROWED[command][0]) == left
    assert narrowed(command, pack(answer), WIDE) == pack(answer)


def test_where_a_server_has_its_things_is_told_to_who_runs_it() -> None:
    sees_all = Rights("eve", ["eve"], [Grant(action="describe", resource="*")])
    assert sees_all.sees_all
    for rights in (NARROW, sees_all):
        told = unpack(narrowed(Command.STATUS, pack(status()), rights), Status)
        assert (told.data_dir, told.registry, told.pid, told.state) == ("", "", 0, "ok")
    assert narrowed(Command.STATUS, pack(status()), WIDE) == pack(status())


def test_other_answers_are_not_touched() -> None:
    assert narrowed(Command.READ, b"\xff rubbish", NARROW) == b"\xff rubbish"
