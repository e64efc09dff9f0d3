"""Names and comments: a file is a noun, its first lines say what it is, nothing waits for later."""

import ast
import io
import re
import tokenize

from tests.tidy.source import Module, modules, settled

BANNED_MODULE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
LEFT_FOR_LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
BARE_NOQA = re.compile(r"#\s*noqa(?!:)", re.IGNORECASE)

VAGUE_NAMES: set[str] = set()


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


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert not [line for line in comment_lines() if LEFT_FOR_LATER.search(line)]


def test_a_silenced_checker_names_what_it_silences() -> None:
    bare = [line for line in comment_lines() if BARE_IGNORE.search(line) or BARE_NOQA.search(line)]

    assert not bare


def comment_lines() -> list[str]:
    return [f"{module.name}: {comment}" for module in modules() for comment in comments(module)]


def comments(module: Module) -> list[str]:
    """The comments and docstrings; code and other strings may say what they like."""
    read = tokenize.generate_tokens(io.StringIO(module.text).readline)
    hashes = [token.string for token in read if token.type == tokenize.COMMENT]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(module.tree)
        if isinstance(node, documented)
    ]
    return hashes + strings
