"""Names and comments: a file is a noun, its first lines say what it is, nothing waits for later."""

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache

from scripts.make_sync import TWINS
from tests.tidy.source import PACKAGE, ROOT, Module, modules, settled

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

BANNED_MODULE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
LEFT_FOR_LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
BARE_NOQA = re.compile(r"#\s*noqa(?!:)", re.IGNORECASE)

PURE_CLAIM = re.compile(r"\bPure\b|; pure\b")

VAGUE_NAMES: set[str] = set()
NAMED_TWICE: set[str] = set()
TYPES_NAMED_TWICE: set[str] = set()
"""One word per idea: a class name means one thing in all of src/ternmq, with or without an
underscore before it. The twins in `sync` have the names of the classes they wrap."""
PRIVATE_WORDS = {
    "crowded",
    "feeding",
    "feeds",
    "holding",
    "intake",
    "lent",
    "looker",
    "parcel",
    "said",
    "teller",
    "told",
    "undertaker",
}
"""What parts were once called here and nowhere else; nothing is given such a name again."""
PRIVATE_WORDS_LEFT = {
    "client/admin/groups.py: told",  # A parameter that applications may name.
    "storage/messages/transactions.py: lent",  # A stored field.
    "sync/admin.py: told",
}
NO_NOUN = re.compile(
    r"(It|Its|They|Them|Their|Those|So it|As it)\b"
    r"|(These|That) (are|can|exist|is|stood|the|were)\b"
    r"|The same( (as|by|for|from|in|of|on|to|with|without)\b|[.,;:])"
    r"|.*\b[Ss]omebody\b"
)
"""How the first line of a docstring does not go: nothing before it says what is meant."""
PURE_BY_WORD_ONLY: set[str] = set()
"""They say that they are pure, and no contract in pyproject.toml holds them to it yet."""


def test_every_module_says_what_it_is() -> None:
    silent = [
        module.name for module in modules() if module.text and not ast.get_docstring(module.tree)
    ]
    empty = [module.name for module in modules() if module.shipped and not module.text]

    assert not silent + empty


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        module.name
        for module in modules()
        if BANNED_MODULE_NAMES & {module.path.stem, module.path.parent.name}
    ]

    assert not settled(vague, allowed=VAGUE_NAMES)


def test_a_class_name_is_defined_once() -> None:
    twins = {twin.name for twin in TWINS}
    names = Counter(
        node.name.strip("_")
        for module in modules()
        if module.shipped
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and not (in_sync(module) and node.name in twins)
    )

    assert not settled([name for name, count in names.items() if count > 1], allowed=NAMED_TWICE)


def test_a_name_of_a_type_means_one_thing() -> None:
    """A type that gets a name of its own (`Ranges = list[tuple[int, int]]`) has no name of a class,
    and no name that is another type elsewhere. What frameworks read (`Annotated`) is none."""
    shipped = [module for module in modules() if module.shipped]
    classes = {
        node.name
        for module in shipped
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    meanings: dict[str, set[str]] = {}
    for module in shipped:
        for name, meaning in named_types(module):
            meanings.setdefault(name, set()).add(meaning)
    twice = [name for name, found in meanings.items() if len(found) > 1 or name in classes]

    assert not settled(twice, allowed=TYPES_NAMED_TWICE)


def named_types(module: Module) -> Iterator[tuple[str, str]]:
    for node in module.tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, meaning = node.targets[0].id, ast.unparse(node.value)
        is_type = isinstance(node.value, ast.Subscript | ast.BinOp) and not name.startswith("_")
        if is_type and re.match("[A-Z][a-z]", name) and not meaning.startswith("Annotated["):
            yield name, meaning


def test_nothing_is_named_in_a_private_language() -> None:
    named = {
        f"{module.path.relative_to(PACKAGE).as_posix()}: {name}"
        for module in modules()
        if module.shipped
        for node in ast.walk(module.tree)
        for name in [given_name(node).strip("_").lower()]
        if name in PRIVATE_WORDS
    }

    assert not settled(named, allowed=PRIVATE_WORDS_LEFT)


def test_a_class_says_what_it_is() -> None:
    nameless = [
        f"{module.name}: {text.splitlines()[0]}"
        for module in modules()
        if module.shipped
        for text in docstrings(module, ast.ClassDef)
        if re.match(r"(Of|All of them)\b", text)
    ]

    assert not nameless


def test_the_first_line_of_a_docstring_names_what_it_is_about() -> None:
    nameless = [
        f"{module.name}: {text.splitlines()[0]}"
        for module in modules()
        if module.shipped
        for text in docstrings(module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if NO_NOUN.match(text)
    ]

    assert not nameless


def given_name(node: ast.AST) -> str:
    """The name that this piece of code gives to something; else nothing."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.arg():
            return node.arg
        case ast.Name(ctx=ast.Store()):
            return node.id
        case ast.Attribute(ctx=ast.Store()):
            return node.attr
    return ""


def in_sync(module: Module) -> bool:
    return module.path.relative_to(PACKAGE).parts[0] == "sync"


def test_what_says_that_it_is_pure_is_held_to_it() -> None:
    """By a contract of import-linter whose id has the word `pure` in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = tuple(
        name
        for contract in settings["tool"]["importlinter"]["contracts"]
        if "pure" in contract["id"]
        for name in contract["source_modules"]
    )
    only_said = [
        name
        for module in modules()
        if module.shipped and any(map(PURE_CLAIM.search, claims(module)))
        for name in [module.dotted]
        if not any(name == one or name.startswith(f"{one}.") for one in held)
    ]

    assert not settled(only_said, allowed=PURE_BY_WORD_ONLY)


def claims(module: Module) -> list[str]:
    """What a module and its classes say of themselves."""
    return docstrings(module, ast.ClassDef)


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert not [line for line in comment_lines() if LEFT_FOR_LATER.search(line)]


def test_a_silenced_checker_names_what_it_silences() -> None:
    bare = [line for line in comment_lines() if BARE_IGNORE.search(line) or BARE_NOQA.search(line)]

    assert not bare


def comment_lines() -> list[str]:
    return [f"{module.name}: {comment}" for module in modules() for comment in comments(module)]


@cache
def comments(module: Module) -> list[str]:
    """The comments and docstrings; code and other strings may say what they like."""
    read = tokenize.generate_tokens(io.StringIO(module.text).readline)
    hashes = [token.string for token in read if token.type == tokenize.COMMENT]
    return hashes + docstrings(module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(module: Module, *kinds: type[Documented]) -> list[str]:
    """Of a module and of everything of these kinds in it."""
    inner = [node for node in ast.walk(module.tree) if isinstance(node, kinds)]
    found = [ast.get_docstring(module.tree), *map(ast.get_docstring, inner)]
    return [text for text in found if text]
