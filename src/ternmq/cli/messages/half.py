"""`tern half`: transactions that have not ended, and ending them by hand."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import (
    note,
    plain,
    say,
    show_facts,
    show_json,
    show_table,
    size,
    utc,
)
from ternmq.cli.terminal.partial_answers import end_incomplete, use_tolerant
from ternmq.core.errors import BadRequest, TransactionEnded, TransactionNotFound
from ternmq.wire.messages.transactions import HalfEnded, HalfOpen

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(
    help="Look at transactions that have not ended, and end them by hand.", no_args_is_help=True
)

Id = Annotated[
    str, typer.Argument(metavar="TRANSACTION", help="Its id, or the name of a detached one.")
]


@app.command("list")
def list_open(
    dropped: Annotated[bool, typer.Option(help="Only those that were given up.")] = False,
    application: Annotated[str, typer.Option("--app", help="Only of this application.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most so many.")] = 1_000,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List open transactions, the oldest first. Their messages are seen by nobody yet."""
    found, missing = use_tolerant(
        url,
        lambda admin: admin.halves(dropped_only=dropped, app=application, limit=limit),
    )
    if as_json:
        show_json(
            {
                "transactions": [_fields(one) for one in found.transactions],
                "total": found.total,
                "dropped_since_start": found.dropped,
            }
        )
        end_incomplete(missing)
        return
    if found.transactions:
        show_table(
            [
                "transaction",
                "#attempt",
                "app",
                "state",
                "topics",
                "#messages",
                "#size",
                "opened",
                "#checks",
                "next",
                "broker group",
            ],
            [
                (
                    one.name or one.transaction.hex(),
                    one.attempt if one.name else None,
                    one.app,
                    one.state,
                    ",".join(one.topics),
                    one.rows,
                    size(one.size),
                    utc(one.opened_at_ms),
                    one.checks,
                    utc(one.next_at_ms),
                    one.broker_group,
                )
                for one in found.transactions
            ],
        )
    note(f"{found.total} open, {found.dropped} given up since the broker started")
    end_incomplete(missing)


@app.command()
def show(transaction: Id, url: Url = URL, as_json: Json = False) -> None:
    """Show one open transaction."""

    async def job(mq: "Client") -> list[HalfOpen]:
        return await _named(mq, transaction)

    found = use(url, job)
    if as_json:
        show_json([_fields(one) for one in found])
        return
    for one in found:
        show_facts({**_fields(one), "topics": ", ".join(one.topics)})


Attempts = Annotated[
    list[int] | None,
    typer.Option("--attempt", min=0, help="Of a detached one: only this attempt; repeatable."),
]


@app.command()
def commit(
    transaction: Id,
    attempt: Attempts = None,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make the messages of a transaction visible."""
    confirm(f"Commit transaction {transaction}? This cannot be undone.", yes=yes)
    ended = use(url, lambda mq: _end(mq, transaction, attempt or [], "commit"))
    _show_end(transaction, ended, as_json=as_json)


@app.command()
def rollback(
    transaction: Id,
    attempt: Attempts = None,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Forget the messages of a transaction."""
    confirm(f"Roll back transaction {transaction}? This cannot be undone.", yes=yes)
    ended = use(url, lambda mq: _end(mq, transaction, attempt or [], "rollback"))
    _show_end(transaction, ended, as_json=as_json)


async def _end(
    mq: "Client", transaction: str, attempts: list[int], action: Literal["commit", "rollback"]
) -> HalfEnded:
    if _is_id(transaction):
        return await mq.admin.end_half(transaction, action)
    found = (await mq.admin.halves(name=transaction)).transactions
    if action == "rollback":
        ending = await mq.abort_detached(transaction, attempts)
        if ending.state == "committed" and not found:
            raise TransactionEnded("the transaction is committed already", state="committed")
        if not found:
            raise _not_found(transaction)
        rows = [one for one in found if not attempts or one.attempt in attempts]
        note(f"{sum(one.rows for one in rows)} message(s) are forgotten")
    else:
        opened = sorted(one.attempt for one in found)
        if len(opened) > 1 and not attempts:
            raise BadRequest(
                f"attempts {opened} of {transaction!r} are open, and a later one most often has "
                f"the same messages again: say which, as in --attempt {opened[-1]}"
            )
        ending = await mq.commit_detached(transaction, attempts)
    return HalfEnded(
        state="committed" if ending.state == "committed" else "rolled_back",
        placed=ending.placed,
        attempts=ending.attempts,
        repeated=ending.repeated,
    )


def _show_end(transaction: str, ended: HalfEnded, *, as_json: bool) -> None:
    if as_json:
        show_json(plain(ended))
        return
    rows = sum(place.count for place in ended.placed)
    before = " (it was before)" if ended.repeated else ""
    say(f"transaction {transaction} is {ended.state.replace('_', ' ')}{before}: {rows} message(s)")


async def _named(mq: "Client", transaction: str) -> list[HalfOpen]:
    if _is_id(transaction):
        found = await mq.admin.halves(transaction=transaction)
    else:
        found = await mq.admin.halves(name=transaction)
    if not found.transactions:
        raise _not_found(transaction)
    return found.transactions


def _not_found(transaction: str) -> TransactionNotFound:
    return TransactionNotFound(
        f"no open transaction {transaction!r}; 'tern half list' shows what is open"
    )


def _is_id(text: str) -> bool:
    return len(text) == 32 and all(letter in "0123456789abcdefABCDEF" for letter in text)


def _fields(one: HalfOpen) -> dict[str, object]:
    return {
        "transaction": one.name or one.transaction.hex(),
        "detached": bool(one.name),
        "attempt": one.attempt,
        "app": one.app,
        "state": one.state,
        "topics": one.topics,
        "messages": one.rows,
        "size": one.size,
        "opened_at": utc(one.opened_at_ms),
        "checks": one.checks,
        "next_at": utc(one.next_at_ms),
        "broker_group": one.broker_group,
    }
