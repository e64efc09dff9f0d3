"""The console as a process: beside `tern up`, alone, refused, killed; callers of other kinds."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.integration.console.conftest import seeded
from tests.integration.processes import COMMAND, NodeFactory, clean_environment, free_ports, tern
from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("produce_and_consume.mjs")
BESIDE = {"TERN_CONSOLE": "true"}


def answers(origin: str) -> bool:
    return httpx.get(origin).status_code == 200


def test_tern_up_starts_a_console_and_outlives_it(node_factory: NodeFactory) -> None:
    """The banner names its address; its death is one line, and the node goes on; R25, J13."""
    node = node_factory(environment=BESIDE)
    origin = f"http://127.0.0.1:{node.port + 80}"
    wait_until(lambda: answers(origin), "the console answers", ignoring=httpx.TransportError)

    assert f"console {origin}" in node.stderr_text()
    [child] = children(node.pid)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: "console (pid" in node.stderr_text(), "its end is told")
    assert tern("send", "hello", "still here", url=node.url).code == 0
    assert node.stop() == 0


def test_a_console_stops_with_its_node(node_factory: NodeFactory) -> None:
    node = node_factory(environment=BESIDE)
    origin = f"http://127.0.0.1:{node.port + 80}"
    wait_until(lambda: answers(origin), "the console answers", ignoring=httpx.TransportError)
    [child] = children(node.pid)

    assert node.stop() == 0
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the console is gone")
    assert "Traceback" not in (node.data_dir / "console.log").read_text(encoding="utf-8")


def test_beside_a_node_with_security_on_people_log_in(node_factory: NodeFactory) -> None:
    """Its own password is in a file, and in no argument; who stops the node leaves no token."""
    node = node_factory(environment={"TERN_SECURITY": "true"} | BESIDE)
    origin = f"http://127.0.0.1:{node.port + 80}"
    wait_until(
        lambda: httpx.get(f"{origin}/login").status_code == 200,
        "the console answers",
        ignoring=httpx.TransportError,
    )
    own = node.data_dir / "console-password"
    [child] = children(node.pid)
    arguments = Path(f"/proc/{child}/cmdline").read_bytes().decode()
    password = (node.data_dir / "admin-password").read_text(encoding="ascii").strip()
    with httpx.Client(base_url=origin, headers={"Origin": origin}, timeout=30) as http:
        nobody = http.get("/topics")
        came = http.post("/login", data={"user": "admin", "password": password})
        sent = http.post(
            "/api/v1/topics/hello/messages", json={"messages": [{"text": "from the console"}]}
        )
        topic = http.get("/api/v1/topics/hello").json()

    assert own.stat().st_mode & 0o077 == 0
    assert own.read_text(encoding="ascii").strip() not in arguments
    assert nobody.status_code == 303 and came.status_code == 303
    assert sent.status_code == 200
    assert topic["topic"] == "hello"
    assert node.stop() == 0
    assert "Traceback" not in (node.data_dir / "console.log").read_text(encoding="utf-8")


def test_a_console_without_a_user_is_refused_with_words(node_factory: NodeFactory) -> None:
    node = node_factory(environment={"TERN_SECURITY": "true"})
    refused = subprocess.run(
        [*COMMAND, "console", "--url", node.url, "--port", str(free_ports(1))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(),
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: this cluster has security on")


def test_another_address_than_loopback_is_refused() -> None:
    refused = tern("console", "--host", "0.0.0.0", code=2, url=None)

    assert "listens on loopback only" in refused.err.replace("\n", " ")


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
async def test_a_program_without_our_client_produces_and_consumes() -> None:
    async with seeded(listens=True, large=False) as console:
        ran = await asyncio.create_subprocess_exec(
            "node", str(SCRIPT), console.origin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await ran.communicate()

        assert ran.returncode == 0, err.decode()
        assert json.loads(out) == list(range(10))


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]
