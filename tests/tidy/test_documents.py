"""Documents stay true: links lead somewhere, the map names every package, examples run."""

import re
from pathlib import Path

from tests.tidy.source import PACKAGE, ROOT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
ARCHITECTURE_LINES_MAX = 300
ARCHITECTURE_WIDTH_MAX = 150
SKIPPED_FOLDERS = {".venv", ".git", "node_modules", "tern-data"}
ELSEWHERE = ("http://", "https://", "mailto:", "tern://")

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def documents() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not SKIPPED_FOLDERS & set(path.relative_to(ROOT).parts)
    )


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in links(document)
        if not resolves(document, target)
    ]

    assert not broken


def test_the_map_has_one_line_for_every_folder() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| \**\[[\w/]+\]\(src/ternmq/([\w/]+)\)\** \|", text, re.MULTILINE)
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")}

    assert len(listed) == len(set(listed))
    assert set(listed) == folders - {"."}


def test_the_map_stays_short() -> None:
    lines = ARCHITECTURE.read_text(encoding="utf-8").splitlines()

    assert len(lines) < ARCHITECTURE_LINES_MAX
    assert not [line for line in lines if len(line) > ARCHITECTURE_WIDTH_MAX]


def test_every_example_is_run_by_a_test() -> None:
    tested = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "integration").rglob("*.py")
    )
    examples = sorted((ROOT / "examples").glob("*.py"))
    unrun = [path.name for path in examples if path.name not in tested]

    assert not unrun


def links(document: Path) -> list[str]:
    """Where the links of a document lead, those to other sites left out."""
    text = CODE.sub("", FENCE.sub("", document.read_text(encoding="utf-8")))
    return [target for target in LINK.findall(text) if not target.startswith(ELSEWHERE)]


def resolves(document: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (document.parent / name).resolve() if name else document
    if not path.exists():
        return False
    if not anchor or path.suffix != ".md":
        return True
    return anchor in anchors(path)


def anchors(document: Path) -> set[str]:
    """The anchors that the headings of a document get, as GitHub makes them."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}
