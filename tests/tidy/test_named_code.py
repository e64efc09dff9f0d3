"""What documents say about the code is there: files, modules, classes in files, requirements.

A changelog tells of the past and may name what is gone. Everything else is about the code as it is.
"""

import ast
import builtins
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT, modules
from tests.tidy.test_documents import documents
from tests.tidy.test_words import comments

HISTORY = {"CHANGELOG.md"}
ABOUT_CODE = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/reading-order.md",
    "docs/testing.md",
    "docs/glossary.md",
)
"""Pages on which a file without a folder is one of ours too."""

FILE = re.compile(r"(?<![\w./<$-])((?:[\w-]+/)*[\w-]+\.py)\b")
CODE = re.compile(r"`([^`\n]+)`")
MODULE = re.compile(r"(?<![\w./-])(ternmq(?:\.[a-zA-Z_]\w*)+)")
CLASS = re.compile(r"^([A-Z][a-z]\w*)(?:\.(\w+))?(?:\(\))?$")
NAMED_IN = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?` (?:in|of) `([\w/]+\.py)`")
FILE_THEN_NAME = re.compile(r"`([\w/]+\.py)` `([A-Za-z_][\w.]*)(?:\(\))?`")
REQUIREMENT = re.compile(r"\b[QRJDP]\d{1,2}\b")

ELSEWHERE = {"AsyncSession", "DataSource", "IntEnum", "Key", "Path", "Session"}
"""Classes of others, and one property of an example."""


def pages() -> list[Path]:
    return [path for path in documents() if path.name not in HISTORY]


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_file_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    own = page.relative_to(ROOT).as_posix() in ABOUT_CODE
    gone = [name for name in files_named(text) if ("/" in name or own) and not found(name)]

    assert not gone


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = [name for name in dict.fromkeys(MODULE.findall(text)) if not resolves(name)]

    assert not gone


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_class_that_a_document_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    classes = (CLASS.match(code) for code in CODE.findall(text))
    named = {match.group(1) for match in classes if match is not None}

    assert not sorted(named - known_classes() - ELSEWHERE)


def test_every_class_that_a_comment_names_exists() -> None:
    gone = [
        f"{module.name}: {match.group(1)}"
        for module in modules()
        if module.shipped
        for text in comments(module)
        for match in map(CLASS.match, CODE.findall(text))
        if match is not None and match.group(1) not in known_classes() | ELSEWHERE
    ]

    assert not gone


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_name_that_a_document_puts_into_a_file_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    claims = [(file, name) for name, file in NAMED_IN.findall(text)]
    claims += FILE_THEN_NAME.findall(text)
    wrong = [f"{name} is not in {file}" for file, name in claims if not defines(file, name)]

    assert not wrong


def test_every_requirement_that_code_names_is_on_its_page() -> None:
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| ([QRJDP]\d{1,2}) \|", page, re.MULTILINE))
    unknown = [
        f"{module.name}: {name}"
        for module in modules()
        for text in comments(module)
        for name in REQUIREMENT.findall(text)
        if name not in known
    ]

    assert len(known) > 80
    assert not unknown


def files_named(text: str) -> Iterator[str]:
    return iter(dict.fromkeys(FILE.findall(text)))


def found(name: str) -> bool:
    """In the repository, in the package, or, without a folder, anywhere among our files."""
    if "/" in name:
        return any((folder / name).exists() for folder in (ROOT, ROOT / "docs", PACKAGE))
    return name in {module.path.name for module in modules()}


def resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


@cache
def known_classes() -> frozenset[str]:
    """Ours and Python's; names that stand for a type count, too."""
    ours = {
        node.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    ours |= {name for module in modules() for name in assigned(module.tree)}
    return frozenset(ours | set(dir(builtins)))


def assigned(tree: ast.Module) -> set[str]:
    """The names that a module gives to something outside its functions."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in ast.walk(node)
        if isinstance(target, ast.Name)
    }


def defines(file: str, name: str) -> bool:
    """Every part of a dotted name is defined in the file."""
    paths = [folder / file for folder in (ROOT, PACKAGE) if (folder / file).exists()]
    if not paths:
        return False
    tree = ast.parse(paths[0].read_text(encoding="utf-8"))
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return set(name.split(".")) <= names | assigned(tree)
