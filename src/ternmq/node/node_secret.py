"""The node secret as a file: read, or made at the first start; for its owner only.

`node_secret_file` names one that several servers share. Without it a meta server and an all-in-one
node make one of their own in the data directory; a broker or delay server that is a process of its
own cannot, because nobody would know it.
"""

import os
import secrets
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.node.config import NodeConfig
from ternmq.rpc.node_proof import NodeSecret
from ternmq.security.private_files import make_once

FILE = "node-secret"
SIZE_MAX = 4_096
WAIVED_MAX = timedelta(days=7)
HOW = "openssl rand -hex 32 > FILE; chmod 600 FILE"

log = get_logger()


def own_node_secret(config: NodeConfig, clock: Clock) -> NodeSecret:
    """Of a server that others join; made where there is none yet."""
    if config.node_secret_file:
        path = Path(config.node_secret_file)
    else:
        path = config.data_dir / FILE
        make_node_secret(path)
    return read_node_secret(path, _waived(config.unproven_servers_until, clock))


def shared_node_secret(config: NodeConfig, clock: Clock) -> NodeSecret | None:
    """Of a server that joins others; an operator has to bring it. None: there is TLS, and its
    certificate may prove it."""
    path = Path(config.node_secret_file) if config.node_secret_file else config.data_dir / FILE
    if not config.node_secret_file and not path.exists():
        if config.tls.tls:
            return None
        raise BadConfig(
            "this server joins a cluster and has no node secret by which to prove itself: set "
            "node_secret_file (--node-secret-file, TERN_NODE_SECRET_FILE) to a copy of the meta "
            f"servers', which is {FILE} in their data directory, or put the copy at {path}"
        )
    return read_node_secret(path, _waived(config.unproven_servers_until, clock))


def make_node_secret(path: Path) -> None:
    """A new one, whole or not at all, unless there is one."""
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_once(path, secrets.token_hex(32).encode() + b"\n")
    except OSError as error:
        raise BadConfig(f"cannot make the node secret {path}: {error.strerror}") from error


def _waived(until: str, clock: Clock) -> Callable[[], bool]:
    """Whether servers need not prove themselves now, by the setting."""
    if not until:
        return lambda: False
    try:
        end = datetime.fromisoformat(until)
    except ValueError as error:
        raise BadConfig(
            f"unproven_servers_until is a time such as 2026-11-20T06:00Z, not {until!r}"
        ) from error
    end_ms = int((end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp() * 1000)
    now_ms = clock.now_ms()
    if end_ms - now_ms > WAIVED_MAX / timedelta(milliseconds=1):
        raise BadConfig(
            f"unproven_servers_until = {until!r} is more than {WAIVED_MAX.days} days ahead; an "
            "upgrade takes less, and until then whoever reaches a server may be one"
        )
    if end_ms > now_ms:
        log.warning(
            "servers of release 0.1 are let in without a proof; whoever reaches this address may "
            "say that it is one",
            until=until,
        )
    return lambda: clock.now_ms() < end_ms


def read_node_secret(path: Path, waived: Callable[[], bool] | None = None) -> NodeSecret:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(SIZE_MAX).decode()
    except FileNotFoundError as error:
        raise BadConfig(
            f"there is no node secret at {path}; make one for all servers of the cluster: {HOW}"
        ) from error
    except OSError as error:
        raise BadConfig(f"cannot read the node secret {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"the node secret {path} is not text; make one: {HOW}") from error
    if mode & 0o007:
        raise BadConfig(
            f"everybody on this machine may use the node secret {path} (mode {mode:o}): "
            f"chmod 600 {path}, and make another one if others were here"
        )
    return NodeSecret(text, str(path), waived or (lambda: False))
