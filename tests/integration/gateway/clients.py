"""Gateways as processes, and official RocketMQ clients told what to do; see `python_driver.py`."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tests.integration.processes import Node, clean_environment, free_ports

PYTHON_DRIVER = Path(__file__).with_name("python_driver.py")

Shown = dict[str, str]
"""A message as a driver shows it."""


class ClientRefused(Exception):
    """The client raised; `code` is what the gateway said, 0 where it was the client itself."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(slots=True, kw_only=True)
class GatewayServer(Node):
    """One `tern gateway serve`, for the meta servers at `meta`."""

    meta: str

    def command(self) -> list[str]:
        return ["gateway", "serve", "--url", self.meta, "--port", str(self.port)]

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"


def make_gateway(
    meta: str,
    folder: Path,
    arguments: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> GatewayServer:
    """One that is started."""
    home = folder / f"gateway-{len(list(folder.glob('gateway-*'))) + 1}"
    home.mkdir()
    server = GatewayServer(
        port=free_ports(1),
        data_dir=home / "data",
        output_dir=home,
        arguments=arguments,
        environment=environment,
        meta=meta,
    )
    server.start()
    return server


class DrivenClient:
    """One process with the official client of one language."""

    def __init__(self, command: Sequence[str], home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        environment = clean_environment({"HOME": str(home), "GRPC_VERBOSITY": "NONE"})
        self._log = (home / "stderr").open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
        self._answers()

    def do(self, word: str, **values: Any) -> dict[str, Any]:
        """Tell it one thing; what it answers, messages under "messages"."""
        assert self._process.stdin is not None
        named = {name.replace("p_", "p.", 1): str(value) for name, value in values.items()}
        self._process.stdin.write(f"{word} {urlencode(named).replace('&', ' ')}\n")
        self._process.stdin.flush()
        return self._answers()

    def messages(self, word: str, **values: Any) -> list[Shown]:
        found: list[Shown] = self.do(word, **values)["messages"]
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._close()

    def end(self) -> None:
        """Without the client's own goodbye, which takes long in some."""
        if self._process.poll() is None:
            self.kill()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()

    def _answers(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        messages: list[Shown] = []
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            values = dict(parse_qsl(rest.replace(" ", "&"), keep_blank_values=True))
            if word == "message":
                messages.append(values)
            elif word == "ok":
                return {**values, "messages": messages}
            elif word == "error":
                raise ClientRefused(int(values["code"]), values["text"])
        raise AssertionError(f"the client ended ({self._process.wait(10)})")


class ClientFactory:
    """Makes clients of one language, and ends them with the test."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._made: list[DrivenClient] = []

    def __call__(self, endpoint: str, *credentials: str) -> DrivenClient:
        home = self._folder / f"client-{len(self._made) + 1}"
        client = DrivenClient([*self._command, endpoint, *credentials], home)
        self._made.append(client)
        return client

    def finish(self) -> None:
        for client in self._made:
            client.end()


def python_command() -> list[str]:
    return [sys.executable, "-W", "ignore", str(PYTHON_DRIVER)]
