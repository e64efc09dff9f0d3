"""`make audit`: known holes in what this environment has installed, and the list of its parts.

pip-audit asks the advisory database, cyclonedx-bom writes `build/sbom.json` (CycloneDX). Both go
into an environment of their own, `.venv/audit`, so that they change nothing of what they look at.
What cannot be had here (no network, no registry) is named and skipped with its reason: only a known
hole is a failure. `--offline` does not try to fetch the tools.
"""

import argparse
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".venv" / "audit"
SBOM = ROOT / "build" / "sbom.json"
PACKAGES = ("pip-audit>=2.10", "cyclonedx-bom>=7.5")
HOLES_FOUND = "known vulnerabilit"
"""How pip-audit begins its verdict when there are any."""
SECONDS_MAX = 900


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offline", action="store_true", help="only with tools that are here")
    missing = _fetch(offline=parser.parse_args().offline)
    if missing:
        _say(f"skipped, the tools cannot be had here: {missing}")
        return 0
    holes = _run("pip-audit", "--path", sysconfig.get_path("purelib"), "--progress-spinner", "off")
    SBOM.parent.mkdir(exist_ok=True)
    parts = _run("cyclonedx-py", "environment", sys.executable, "--output-file", str(SBOM))
    _say(f"list of parts: {SBOM}" if not parts[0] else f"skipped the list: {_last(parts[1])}")
    return verdict(*holes)


def verdict(code: int, said: str) -> int:
    """0 unless there are holes; that nobody could be asked is told and is no failure."""
    if code == 0:
        _say("no known holes in what is installed")
        return 0
    if HOLES_FOUND in said:
        _say(said)
        return 1
    _say(f"skipped, the advisory database was not asked: {_last(said)}")
    return 0


def _fetch(*, offline: bool) -> str:
    """Why the tools are not there; empty: they are."""
    if (TOOLS / "bin" / "pip-audit").exists() and (TOOLS / "bin" / "cyclonedx-py").exists():
        return ""
    if offline:
        return "--offline, and they were never fetched"
    try:
        venv.create(TOOLS, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    code, said = _run("pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
    return _last(said) if code else ""


def _run(tool: str, *arguments: str) -> tuple[int, str]:
    command = [str(TOOLS / "bin" / tool), *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return ran.returncode, ran.stdout + ran.stderr


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][:300] if lines else "no word of why"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
