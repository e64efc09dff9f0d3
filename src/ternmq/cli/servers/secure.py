"""`tern secure`: the files that TLS needs, made here, and what to write where.

Nothing is sent anywhere: a folder gets a CA, the certificates of servers and clients are signed by
it. What to do next is printed as it has to be typed. Needs the extra `security`.
"""

import socket
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import Json
from ternmq.cli.terminal.output import say, show_json
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

if TYPE_CHECKING:
    from ternmq.security.tls.authority import CertificatePair
    from ternmq.security.tls.node_name import NodeName

app = typer.Typer(
    help="Certificates for TLS: a CA of your own, for servers and clients.", no_args_is_help=True
)

LOCAL = ("localhost", "127.0.0.1", "::1")
DAYS_MAX = 3_650
NODE, ADMIN = "node", "admin"

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the CA.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="A name or address by which it is reached; may be given several times.",
    ),
]
Days = Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How long certificates are good.")]


class CertificateFlag(StrEnum):
    """For whom a certificate is."""

    node = "node"
    meta = "meta"
    broker = "broker"
    delay = "delay"
    client = "client"


KINDS = {
    CertificateFlag.node: ("meta", "realtime", "delay"),
    CertificateFlag.meta: ("meta",),
    CertificateFlag.broker: ("realtime",),
    CertificateFlag.delay: ("delay",),
    CertificateFlag.client: (),
}


@app.command("init")
def initialise(
    folder: Folder,
    cluster: Annotated[str, typer.Option(help="What the cluster is called.")] = "main",
    group: Annotated[str, typer.Option(help="Broker group of the first node.")] = "main",
    host: Hosts = None,
    days: Days = 365,
    as_json: Json = False,
) -> None:
    """Make a CA, the certificate of an all-in-one node, and one for you as a client.

    Nothing that is there is replaced. It prints what to write into the config file of the node, and
    the commands that come next.
    """
    from ternmq.security.tls.authority import Authority, CertificateOrder

    check_name("cluster", cluster)
    authority = Authority.make(folder.absolute(), cluster)
    hosts = [*LOCAL, socket.gethostname(), *(host or [])]
    nodes = _names(cluster, CertificateFlag.node, group)
    node = authority.issue(CertificateOrder(name=NODE, hosts=hosts, nodes=nodes, days=days))
    admin = authority.issue(CertificateOrder(name=ADMIN, days=days))
    url = _url(f"{ADMIN}@127.0.0.1:7700", authority.file, admin)
    if as_json:
        show_json({"ca": str(authority.file), "node": _paths(node), "admin": _paths(admin)})
        return
    say(
        "\n".join(
            [
                f"# Made in {folder.absolute()}; keep ca-key.pem away from servers and backups.",
                f"# The node is reached as: {', '.join(dict.fromkeys(hosts))}",
                "# Write this into the node's config file, for example tern.toml:",
                *_settings(authority.file, node),
                "security = true  # Logins and rights: nobody does what was not granted.",
                "",
                "# Then start it, and use it:",
                "#   tern up --config tern.toml",
                f"#   export TERN_URL='{url}'   # You are the admin, by certificate.",
                "#   tern send hello 'my first message'",
                "# An application: a certificate (or a password), a user of its name, its rights:",
                f"#   tern secure cert {folder} shop --for client",
                "#   tern user add shop --no-password",
                "#   tern grant add shop publish 'order.*'",
                "# Another server:",
                f"#   tern secure cert {folder} broker-east --for broker --group east --host HOST",
            ]
        )
    )


@app.command()
def cert(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Of the files, and in the certificate.")],
    whom: Annotated[
        CertificateFlag, typer.Option("--for", help="An all-in-one node, one server, or a client.")
    ] = CertificateFlag.client,
    group: Annotated[str, typer.Option(help="Broker group of that server.")] = "main",
    host: Hosts = None,
    days: Days = 365,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go (the CA's folder).")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Renew: put new files in the place of those of this name."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make one more certificate, signed by the CA in DIR: for a server, or for a client.

    Running servers take renewed files by themselves, within `tls_reload_ms` or on SIGHUP.
    """
    from ternmq.security.tls.authority import Authority, CertificateOrder

    check_name("certificate", name)
    authority = Authority.open(folder.absolute())
    serves = whom is not CertificateFlag.client
    if host and not serves:
        raise BadRequest("a client is not reached by anybody: leave --host out, or say --for what")
    hosts = [*LOCAL, socket.gethostname(), *(host or [])] if serves else []
    nodes = _names(authority.cluster, whom, group)
    order = CertificateOrder(name=name, hosts=hosts, nodes=nodes, days=days)
    pair = authority.issue(order, into=None if into is None else into.absolute(), replace=replace)
    if as_json:
        show_json({"ca": str(authority.file), **_paths(pair)})
    elif serves:
        names = ", ".join(node.uri for node in nodes)
        head = f"# For {names}, reached as {', '.join(dict.fromkeys(hosts))}. In its config file:"
        say("\n".join([head, *_settings(authority.file, pair)]))
    else:
        say(
            f"# Give the client these two files and {authority.file}; it connects with\n"
            + _url("HOST:7700", authority.file, pair)
        )


def _names(cluster: str, whom: CertificateFlag, group: str) -> "list[NodeName]":
    from ternmq.security.tls.node_name import make_node_name

    return [make_node_name(cluster, kind, group) for kind in KINDS[whom]]


def _settings(ca: Path, pair: "CertificatePair") -> list[str]:
    return [
        "tls = true",
        f'tls_certificate_file = "{pair.certificate}"',
        f'tls_key_file = "{pair.key}"',
        f'tls_ca_file = "{ca}"',
    ]


def _url(address: str, ca: Path, pair: "CertificatePair") -> str:
    from ternmq.discovery.url import TLS_SCHEME, with_tls_files

    files = {"ca": str(ca), "cert": str(pair.certificate), "key": str(pair.key)}
    return with_tls_files(f"{TLS_SCHEME}{address}", files)


def _paths(pair: "CertificatePair") -> dict[str, str]:
    return {"certificate": str(pair.certificate), "key": str(pair.key)}
