"""`make audit`: known holes in what this environment has installed, and the list of its parts.

pip-audit asks the advisory database, cyclonedx-bom writes `build/sbom.json` (CycloneDX). Both go
into an environment of their own, `.venv/audit`, so that they change nothing of what they look at;
where they are installed already those are used.
What cannot be had here (no network, no registry) is named and skipped with its reason: only a known
hole is a failure. Without cyclonedx-bom the list is still written, from what the environment says
of itself: names and versions. `--offline` does not try to fetch the tools.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".venv" / "audit"
SBOM = ROOT / "build" / "sbom.json"
PACKAGES = ("pip-audit>=2.10", "cyclonedx-bom>=7.5")
SECONDS_MAX = 900


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offline", action="store_true", help="only with tools that are here")
    missing = _fetch(offline=parser.parse_args().offline)
    SBOM.parent.mkdir(exist_ok=True)
    if missing:
        _say(f"no advisory database was asked, the tools cannot be had here: {missing}")
        write_parts(SBOM)
        _say(f"list of parts, without cyclonedx-bom: {SBOM}")
        return 0
    options = ("--format", "json", "--progress-spinner", "off", "--aliases", "on")
    _, answer = _run("pip-audit", "--path", sysconfig.get_path("purelib"), *options)
    code, parts = _run("cyclonedx-py", "environment", sys.executable, "--output-file", str(SBOM))
    if code:
        write_parts(SBOM)
        _say(f"cyclonedx-bom: {_last(parts)}")
    _say(f"list of parts{', without cyclonedx-bom' if code else ''}: {SBOM}")
    return verdict(answer)


def write_parts(path: Path) -> None:
    """What is installed here as CycloneDX, without asking anybody."""
    parts = {
        each.metadata["Name"]: {
            "type": "library",
            "name": each.metadata["Name"],
            "version": each.version,
            "purl": f"pkg:pypi/{each.metadata['Name'].lower()}@{each.version}",
        }
        for each in metadata.distributions()
        if each.metadata["Name"]
    }
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": [parts[name] for name in sorted(parts, key=str.lower)],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def verdict(answer: str) -> int:
    """Show what pip-audit found; 0 unless there are holes. That nobody could be asked, about some
    or about all packages, is told and is no failure, and is never called good."""
    try:
        packages = json.loads(answer[answer.index("{") :].splitlines()[0])["dependencies"]
    except (ValueError, KeyError, IndexError):
        _say(f"skipped, the advisory database was not asked: {_last(answer)}")
        return 0
    asked = [each for each in packages if "skip_reason" not in each]
    left = [each["name"] for each in packages if "skip_reason" in each]
    holes = [(each, hole) for each in asked for hole in each["vulns"]]
    for package, hole in holes:
        fixed = ", ".join(hole["fix_versions"]) or "no version yet"
        also = f" ({', '.join(hole['aliases'])})" if hole.get("aliases") else ""
        _say(f"{package['name']} {package['version']}: {hole['id']}{also}, fixed in {fixed}")
    if left:
        some = f"{', '.join(left[:5])}{' …' if len(left) > 5 else ''}"
        _say(f"not looked at, the database does not know or was not reached: {len(left)} ({some})")
    if asked:
        _say(f"{len(asked)} packages looked at, {len(holes)} known holes")
    return 1 if holes else 0


def _fetch(*, offline: bool) -> str:
    """Why the tools are not there; empty: they are."""
    if all(_tool(each).exists() for each in ("pip-audit", "cyclonedx-py")):
        return ""
    if offline:
        return "--offline, and they were never fetched"
    try:
        venv.create(TOOLS, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    code, said = _run("pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
    return _last(said) if code else ""


def _tool(name: str) -> Path:
    """In this environment, or in the one that is made for it."""
    own = Path(sys.executable).with_name(name)
    return own if own.exists() and name != "pip" else TOOLS / "bin" / name


def _run(tool: str, *arguments: str) -> tuple[int, str]:
    command = [str(_tool(tool)), *arguments]
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
