"""h2spec, which nobody here wrote, looks at the HTTP/2 of a gateway, in plain text and over TLS.

It is taken from the path, or built with go; without both the test is skipped.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.gateway.clients import GatewayServer

PACKAGE = "github.com/summerwind/h2spec"
VERSION = "v2.2.1+incompatible"
CASES = 145


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("h2spec")
    if found is not None:
        return found
    if shutil.which("go") is None:
        pytest.skip("h2spec is not installed, and go, which builds it, is not either")
    folder = tmp_path_factory.mktemp("h2spec")
    (folder / "go.mod").write_text(f"module spec\n\ngo 1.21\n\nrequire {PACKAGE} {VERSION}\n")
    built = subprocess.run(
        ["go", "build", "-o", "h2spec", f"{PACKAGE}/cmd/h2spec"],
        cwd=folder,
        env={**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"go cannot build h2spec here: {built.stderr[-200:]}")
    return str(folder / "h2spec")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flags", [[], ["-t", "-k"]], ids=["plain", "tls"])
def test_h2spec_finds_nothing(
    h2spec: str, gateway: GatewayServer, flags: list[str], tmp_path: Path
) -> None:
    ran = subprocess.run(
        [h2spec, *flags, "-h", "127.0.0.1", "-p", str(gateway.port), "-P", "/x", "-o", "5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", ran.stdout)

    assert summary is not None, ran.stdout[-500:]
    assert summary.groups() == (str(CASES), str(CASES), "0", "0"), ran.stdout[-3_000:]
