"""`tern console`: the web console and the HTTP API as a process of their own."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Url
from ternmq.cli.terminal.output import note, say
from ternmq.core.units import parse_duration_ms

if TYPE_CHECKING:
    from ternmq.console.config import ConsoleConfig
    from ternmq.console.login.oidc_login import OidcClientConfig

OIDC_ISSUER, OIDC_CLIENT_ID = "TERN_OIDC_ISSUER", "TERN_OIDC_CLIENT_ID"
OIDC_SECRET_FILE, OIDC_USER_CLAIM = "TERN_OIDC_CLIENT_SECRET_FILE", "TERN_OIDC_USER_CLAIM"


def console(
    url: Url = URL,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 7780,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate (PEM) that browsers are shown.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key, which only this user may read.")
    ] = None,
    public_url: Annotated[
        str, typer.Option(metavar="URL", help="How browsers reach it, if by a proxy.")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Also listen without logins, or without TLS.")
    ] = False,
    idle: Annotated[str, typer.Option(help="A session that nobody uses ends after.")] = "2h",
    lasts: Annotated[str, typer.Option(help="Every session ends after.")] = "12h",
    oidc_issuer: Annotated[
        str, typer.Option(envvar=OIDC_ISSUER, metavar="URL", help="By whom people may log in.")
    ] = "",
    oidc_client_id: Annotated[
        str, typer.Option(envvar=OIDC_CLIENT_ID, help="By which it knows this console.")
    ] = "",
    oidc_client_secret_file: Annotated[
        Path | None,
        typer.Option(envvar=OIDC_SECRET_FILE, metavar="FILE", help="What it gave us, if anything."),
    ] = None,
    oidc_user_claim: Annotated[
        str, typer.Option(envvar=OIDC_USER_CLAIM, help="Which claim is the name of the user.")
    ] = "sub",
) -> None:
    """Run the web console and the HTTP API; `tern up` starts one by itself.

    It waits for the cluster. Where security is on it looks as the user of the url (its password in
    TERN_PASSWORD_FILE), and people log in. When it listens, one line `ready http://HOST:PORT`
    appears on stdout.
    """
    from ternmq.cli.terminal.logs import configure
    from ternmq.console.config import ConsoleConfig
    from ternmq.core.process import run_loop

    configure(level="warning")
    config = ConsoleConfig(
        url=url,
        host=host,
        port=port,
        insecure=insecure,
        certificate_file=str(tls_certificate or ""),
        key_file=str(tls_key or ""),
        public_url=public_url,
        oidc=_issuer(oidc_issuer, oidc_client_id, oidc_client_secret_file, oidc_user_claim),
        idle_s=parse_duration_ms(idle) / 1000,
        lasts_s=parse_duration_ms(lasts) / 1000,
    )
    run_loop(_run(config))


def _issuer(
    issuer: str, client_id: str, secret_file: Path | None, user_claim: str
) -> "OidcClientConfig | None":
    from ternmq.console.login.oidc_login import OidcClientConfig
    from ternmq.security.access.secret import read_secret

    if not issuer:
        return None
    secret = None if secret_file is None else read_secret(secret_file, "the client secret")
    return OidcClientConfig(
        issuer=issuer, client_id=client_id, client_secret=secret, user_claim=user_claim
    )


async def _run(config: "ConsoleConfig") -> None:
    from ternmq.cli.processes.shutdown import Stopper
    from ternmq.console.process import serving_console
    from ternmq.core.clock import SystemClock
    from ternmq.core.lifecycle import report_bugs

    report_bugs()
    stopper = Stopper()
    stopper.install()
    try:
        async with serving_console(config, SystemClock()) as address:
            note(f"the console is at {address}; the HTTP API at {address}/api/v1; Ctrl-C stops it")
            say(f"ready {address}")
            sys.stdout.flush()
            await stopper.asked.wait()
    except* asyncio.CancelledError:
        pass
    finally:
        stopper.done()
